"""Results in words: a row of plain text for each variant, and the tables that a terminal shows.

Text from pairs, compilers and exceptions never reaches a markup parser: cells are `Text`, which has none.
"""

import itertools
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from common.python.base.results import Interval, PairResult, VariantResult, Why
from common.python.base.text import clean, counted
from common.python.report.tables import text_table
from common.python.stats.intervals import MARGIN, verdict

T = TypeVar("T")
COLUMNS = ("pair", "verdict", "speedup", "time", "% of limit", "peer", "why")
ROOM = ((150, 7), (134, 6))  # columns of a terminal, and how many of the table they have room for
SHORT = ("pair", "verdict", "speedup", "limit", "peer")  # what a narrower one has of a measured pair
STOPS, STOPS_NEED = (0, 32, 45, 67, 73, 0), 80  # where those and a reason begin in a line, on so wide a terminal
KEY = (
    "speedup: baseline time over optimized, with its 95% interval; peer: best peer's time "
    "(or bytes, where they are the goal) over optimized; "
    "why: baseline -> optimized, bytes without a word are peak memory"
)
LEAST_PERCENT, MOST_BEHIND = 2.0, 5.0  # of its limit that a baseline reaches, and times that a peer may be faster
GLUE = "\N{NO-BREAK SPACE}"  # for a space at which no line is broken
WEAK = "†"
WEAK_MEANS = (
    f"{WEAK} the baseline is under {LEAST_PERCENT:g}% of its limit or a peer is over {MOST_BEHIND:g} times faster than "
    "it, so the peer's ratio leads"
)
TONES = {  # by verdict; charts and pages have a colour of each name
    **dict.fromkeys(("faster", "smaller"), "good"),
    **dict.fromkeys(("same", "inconclusive", "too noisy"), "fair"),
    **dict.fromkeys(("slower", "larger", "invalid", "failed"), "bad"),
}
STYLES = {"good": "green", "fair": "yellow", "bad": "bold red"}  # of the terminal, by tone
LOUD = "bold white on red"  # the title of a table of a CPU's times


@dataclass(frozen=True)
class Row:
    """A line of a table, in words. What may not be shown is empty."""

    pair: str
    verdict: str
    speedup: str = ""
    time: str = ""
    limit: str = ""
    peer: str = ""
    why: str = ""
    rung: bool = False
    mechanism: str = ""  # which the tables of chapters alone have room for
    reason: str = ""  # the part of `why` that nobody may miss
    weak: bool = False  # the baseline is no yardstick

    @property
    def gain(self) -> tuple[str, str]:
        """The cell in the column of speedups: what leads, and what is printed dim behind it."""
        if not self.weak:
            return self.speedup, ""
        return f"peer {self.peer}; " if self.peer else "", f"{self.speedup} {WEAK}"

    def cells(self) -> tuple[str, ...]:
        return (self.pair, self.verdict, "".join(self.gain), self.time, self.limit, self.peer, self.why)

    def short(self) -> tuple[str, ...]:
        """The cells of `SHORT`: of the limit the variant's own share, of the peer its ratio."""
        gain = f"{self.speedup} {WEAK}" if self.weak else self.speedup or self.time
        return (self.pair, self.verdict, gain, self.limit.rpartition(" ")[2], self.peer.partition(" ")[0])


def rows(result: PairResult) -> list[Row]:
    """The pair's own line, for its headline variant, and a line for each further rung."""
    lead = result.headline
    rungs = [variant for variant in result.variants if variant.role == "optimized" and variant is not lead]
    return [_row(result, lead, rung=False), *(_row(result, variant, rung=True) for variant in rungs)]


def _row(result: PairResult, variant: VariantResult | None, rung: bool) -> Row:
    judged = variant if rung and variant else result
    verdict = verdict_text(result, judged)
    reasons = [judged.reason, None if rung or verdict == "too noisy" else result.hint]
    if rung and verdict == "invalid" and judged.verdict != "invalid":
        reasons = ["the pair is invalid"]
    told = "; ".join(clean(reason) for reason in reasons if reason)
    name = clean(variant.label if variant and rung else result.key)
    mechanism = clean(variant.sentence) if variant else ""
    row = Row(name, verdict, why=told, rung=rung, mechanism=mechanism, reason=told)
    if variant is None or not result.trusted(variant):
        return row
    before = result.baseline  # of a single file's run there is only the file itself
    baseline = before if before and before is not variant and result.trusted(before) else None
    peer = f"{ratio_text(result.peer_ratio.ratio)} {clean(result.best_peer or '')}" if result.peer_ratio else ""
    peer += ", in bytes" if peer and result.goal == "memory" else ""
    speedup, differences = gain_text(result, variant), why_text(baseline.why if baseline else None, variant.why)
    times = [if_known(result.us(side), time_text) for side in (baseline, variant)]
    shares = [if_known(side.percent_of_limit if side else None, percent_text) for side in (baseline, variant)]
    return replace(
        row,
        speedup=speedup,
        time=" -> ".join(filter(None, times)),
        limit=" -> ".join(filter(None, shares)),
        peer="" if rung else peer,
        why="; ".join(filter(None, (differences, told))),
        weak=bool(speedup) and weak_baseline(result),
    )


def weak_baseline(result: PairResult) -> bool:
    """Whether a speedup over the baseline says little: it is far from its limit, or a peer is far ahead of it."""
    if result.goal == "memory":
        return False
    known = [row for row in result.variants if result.trusted(row)]
    far = any(row.role == "baseline" and (row.percent_of_limit or LEAST_PERCENT) < LEAST_PERCENT for row in known)
    return far or any(row.role == "peer" and row.speedup and row.speedup.ratio > MOST_BEHIND for row in known)


def verdict_text(result: PairResult, judged: PairResult | VariantResult) -> str:
    """The verdict, or what became of it instead; no variant whose numbers are hidden has a verdict of its own."""
    if judged.status != "measured" and judged.verdict != "invalid":
        return judged.status
    hidden = isinstance(judged, VariantResult) and judged.sound and not result.trusted(judged)
    return "invalid" if result.verdict == "invalid" else judged.status if hidden else judged.verdict or judged.status


def at_fault(result: PairResult) -> PairResult | VariantResult:
    """What makes a pair fail: the pair itself, or the first variant that failed or is invalid."""
    known: list[PairResult | VariantResult] = [result, *result.variants]
    return next((one for one in known if one.status == "failed" or one.verdict == "invalid"), result)


def blame(result: PairResult) -> str:
    """Why a pair failed: its own reason, else that of the first variant which is at fault."""
    wrong = at_fault(result)
    reason = wrong.reason or "no reason was recorded"
    return clean(reason if wrong is result else f"{wrong.name}: {reason}")


def gain_text(result: PairResult, variant: VariantResult) -> str:
    """`3.42x [3.40, 3.44]`, or `2.1x less memory` where memory is the goal."""
    if result.goal == "memory":
        return if_known(variant.memory_ratio, memory_text)
    return if_known(variant.speedup, interval_text)


def if_known(value: T | None, show: Callable[[T], str]) -> str:
    """A value in words, or nothing where there is none."""
    return "" if value is None else show(value)


def interval_text(found: Interval) -> str:
    places = _places(found.ratio)
    return f"{found.ratio:.{places}f}x [{found.low:.{places}f}, {found.high:.{places}f}]"


def percent_text(share: float) -> str:
    return f"{share:.0f}%" if share >= 9.95 else f"{share:.1f}%"


def ratio_text(ratio: float) -> str:
    return f"{ratio:.{_places(ratio)}f}x"


def memory_text(ratio: float) -> str:
    if abs(ratio - 1) <= MARGIN:
        return "same memory"
    factor, word = (ratio, "less") if ratio > 1 else (1 / ratio, "more")
    return f"{factor:.0f}x {word} memory" if factor >= 99.5 else f"{factor:.3g}x {word} memory"


def _places(value: float) -> int:
    """Three significant digits; near 1 a fourth, since the margin of the verdict is 1%."""
    return 3 if 0.1 <= value < 1.1 else _three_digits(value)


def _three_digits(value: float) -> int:
    """Decimal places that leave three digits, counted after rounding: 9.996 is 10.0, not 10.00."""
    return max(0, 2 - math.floor(math.log10(float(f"{value:.3g}")))) if value > 0 else 0


def time_text(us: float) -> str:
    """Three digits in the unit that suits: 12.3 us, 1.23 ms, 2.50 s."""
    unit, scale = ("us", 1.0) if us < 999.5 else ("ms", 1e3) if us < 999.5e3 else ("s", 1e6)
    return f"{us / scale:.{_three_digits(us / scale)}f} {unit}"


def bytes_text(count: float) -> str:
    """Two digits in decimal units: 5.4 GB, 12 MB, 0 B."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * scale:
            return f"{count / scale:.{1 if count < 9.95 * scale else 0}f} {unit}"
    return f"{count:.0f} B"


def why_text(before: Why | None, after: Why | None) -> str:
    """What differs between two profiled steps: `12 kernels -> 1, 5.4 GB -> 2.1 GB`, the bytes being peak memory."""
    if before is None or after is None:
        return ""
    on_gpu = before.kernels is not None and after.kernels is not None
    counts = [("kernel", before.kernels, after.kernels) if on_gpu else ("operator", before.operators, after.operators)]
    counts.append(("sync", before.syncs, after.syncs))
    parts = [f"{counted(a or 0, noun)} -> {b}" for noun, a, b in counts if a != b]
    sizes = [(before.copied_bytes, " copied", after.copied_bytes), (before.peak_bytes, "", after.peak_bytes)]
    told = [(bytes_text(a), word, bytes_text(b)) for a, word, b in sizes if a is not None and b is not None]
    return ", ".join(parts + [f"{a}{word} -> {b}" for a, word, b in told if a != b])


def pair_line(result: PairResult) -> str:
    """All of a pair in one line, for a pipe."""
    row = rows(result)[0]
    limit, peer = (row.limit and f"{row.limit} of limit"), (row.peer and f"peer: {row.peer}")
    where = "ON THE CPU" if result.on_cpu else ""
    return "  ".join(filter(None, (row.pair, row.verdict, "".join(row.gain), row.time, limit, peer, row.why, where)))


def terminal_line(result: PairResult, width: int) -> Text:
    """A pair on a terminal: a line of whole cells; what has no room, such as a long reason, goes on indented below."""
    row = rows(result)[0]
    name, verdict, gain, limit, peer = cells = row.short()
    if width < STOPS_NEED:
        cells = (name, verdict, gain, limit and f"{limit} of limit", peer and f"peer {peer}")
    cells = (*(cell.replace(" ", GLUE) for cell in cells if cell), row.reason)
    line = at_stops(cells, width)
    for more in (row.time, row.why.removesuffix(row.reason).rstrip("; ")):
        line += f"  {more}" if more not in gain and len(line) + len(more) + 2 <= width else ""
    line = textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    text = Text(line.replace(GLUE, " "))
    text.highlight_words([f" {verdict}"], STYLES.get(TONES.get(verdict, ""), ""))
    if row.weak:
        text.highlight_words([gain], "dim")
    return text


def at_stops(cells: Iterable[str], width: int) -> str:
    """Cells side by side, on a terminal with room each from its stop on or right behind a longer one."""
    line = ""
    for cell, stop in zip(cells, STOPS if width >= STOPS_NEED else itertools.repeat(0)):
        line += " " * max(stop - len(line), (1 if stop else 2 * bool(cell)) * bool(line)) + cell
    return line


def suite_title(results: Sequence[PairResult]) -> str:
    """Devices and a count of each verdict, with the CPU said loudly: its times say nothing about a GPU."""
    counts = Counter(rows(result)[0].verdict for result in results)
    devices = sorted({clean(result.device) for result in results if result.device})
    where = ", ".join(devices) + ": " if devices else ""
    told = ", ".join([counted(len(results), "pair"), *(f"{n} {v}" for v, n in counts.items())])
    return "MEASURED ON THE CPU, NOT ON A GPU. " * any(result.on_cpu for result in results) + where + told


def footers(results: Sequence[PairResult]) -> list[str]:
    """What the reader of a table must know: how to read it, where its limits come from, and each note, once."""
    sources = sorted({clean(result.limit.source) for result in results if result.limit})
    notes: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes:
            notes.setdefault(clean(note), []).append(clean(result.key))
    lines = [line for result in results for line in _against(result)]
    lines += [KEY] if results else []
    lines += [WEAK_MEANS] * any(row.weak for result in results for row in rows(result))
    noisy = [result.hint for result in results if result.verdict == "too noisy" and result.hint]
    lines += [f"too noisy: {hint}" for hint in dict.fromkeys(noisy)]
    lines += [f"limits come from: {', '.join(sources)}"] * bool(sources)
    for note, keys in notes.items():
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        lines.append(f"{', '.join(keys[:3])}{more}: {note}")
    return lines


def _against(result: PairResult) -> list[str]:
    """A line for each rung that was measured against another commit: how much faster it is than it was there."""
    lines = list[str]()
    for row in (row for row in result.variants if row.role == "ref"):
        own = next((rung for rung in result.variants if rung.name == row.name.rpartition("@")[0]), row)
        label, _, ref = row.label.rpartition("@")
        name = clean(result.key if label == "optimized" else f"{result.key} {label}")
        found = f"{interval_text(own.against)} against {ref}, {verdict(own.against)}" if own.against else ""
        lines.append(f"{name}: {found or f'not compared with {ref}, {verdict_text(result, row)}'}")
    return lines


def suite_table(results: Sequence[PairResult], width: int = 200) -> Table:
    """The table of a suite, with the columns that `width` characters have room for; names are never broken."""
    shown = COLUMNS[: next((count for least, count in ROOM if width >= least), 0)] or SHORT
    lines = list[list[str | Text]]()
    for row in (row for result in results for row in rows(result)):
        name, verdict, gain, *short = row.short()
        tone, more = STYLES.get(TONES.get(verdict, ""), ""), short if shown is SHORT else row.cells()[3 : len(shown)]
        lines.append([Text("  " * row.rung + name), Text(verdict, tone), Text(gain, "dim" * row.weak), *more])
    style, caption = LOUD if any(result.on_cpu for result in results) else "bold", "\n".join(footers(results))
    table = text_table(shown, lines, suite_title(results), caption, whole=("pair", "verdict"), style=style)
    if shown is SHORT:  # no column is left for rules
        table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
    return table
