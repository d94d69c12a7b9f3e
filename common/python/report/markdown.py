"""Results as tables that people keep: Markdown for a pair, a suite and a chapter's README, CSV for a spreadsheet."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from markupsafe import Markup

from common.python.base.results import Interval, PairResult, SpeedOfLight, Spread, Summary, VariantResult, Why
from common.python.base.text import clean
from common.python.performance_targets import peak_text
from common.python.report.rows import (
    COLUMNS,
    Row,
    bytes_text,
    footers,
    gain_text,
    if_known,
    interval_text,
    rows,
    time_text,
    verdict_text,
)

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"  # the file whose Markdown GitHub Actions shows on the job's page
NCU_MEANS = (
    "By ncu, of one step: each kernel alone, with flushed caches; percentages are of the GPU's peaks, means by the "
    "kernels' times."
)


@dataclass(frozen=True)
class Section:
    """A table about one pair, in words: a line for each variant."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


def sections(result: PairResult) -> list[Section]:
    """All that a reader asks of the variants of a pair: times, proofs, and what explains the difference."""
    known = [row for row in result.variants if result.trusted(row)]
    variants = ("variant", "idea", "verdict", "gain", "% of limit", "rate", "prepare")
    proof = ("variant", "comparisons", "largest error", "refused because")
    why = ("variant", "kernels", "operators", "syncs", "copied", "device busy", "peak memory", "metrics", "longest")
    ncu = ("variant", "DRAM", "SM", "occupancy", "read", "written", "kernels", "their time")
    seen = [[row.label, *_ncu(row.speed_of_light)] for row in known if row.speed_of_light]
    found = [
        Section("Variants", variants, [_variant(result, row) for row in result.variants]),
        times(result),
        Section("Proof", proof, [_proofs(row) for row in result.variants]),
        Section("Why", why, [[row.label, *_why(row.why)] for row in known if row.why]),
        Section("Speed of light", ncu, seen, NCU_MEANS),
    ]
    return [section for section in found if section.lines]


def _variant(result: PairResult, row: VariantResult) -> list[str]:
    named = [row.label, row.sentence, verdict_text(result, row)]
    if not result.trusted(row):
        return [*named, row.reason or ""]
    return [
        *named,
        gain_text(result, row),
        if_known(row.percent_of_limit, "{:.1f}%".format),
        ", ".join(f"{value:.4g} {unit}" for unit, value in row.rates.items()),
        if_known(row.prepare_s, "{:.2f} s".format),
    ]


def times(result: PairResult) -> Section:
    """How the samples of each variant spread, on the clock of the pair; nothing of one that is not trusted."""
    figures = ("mean", "median", "std", "q1", "q3", "p95", "p99")
    known = [(row.label, result.spread(row)) for row in result.variants if result.trusted(row)]
    lines = [
        [label, str(spread.n), *(time_text(getattr(spread, name)) for name in figures), str(spread.outliers)]
        for label, spread in known
        if spread
    ]
    return Section("Times", ("variant", "n", *figures, "outliers"), lines)


def _proofs(row: VariantResult) -> list[str]:
    errors = [proof.error for proof in row.proofs if proof.error is not None]
    refused = [f"{proof.reason} ({proof.size}, {proof.when})" for proof in row.proofs if proof.reason]
    return [row.label, str(len(row.proofs)), f"{max(errors):.2e}" if errors else "", "; ".join(refused)]


def _why(why: Why) -> list[str]:
    return [
        if_known(why.kernels, str),
        str(why.operators),
        str(why.syncs),
        bytes_text(why.copied_bytes),
        if_known(why.busy_us, time_text),
        if_known(why.peak_bytes, bytes_text),
        ", ".join(f"{name} {value:.4g}" for name, value in why.metrics.items()),
        "; ".join(map(clean, why.top)),
    ]


def _ncu(seen: SpeedOfLight) -> list[str]:
    percents = (f"{percent:.1f}%" for percent in (seen.dram_percent, seen.sm_percent, seen.occupancy_percent))
    moved = (bytes_text(count) for count in (seen.read_bytes, seen.written_bytes))
    return [*percents, *moved, str(seen.kernels), time_text(seen.kernel_us)]


def pair_facts(result: PairResult) -> list[str]:
    """How a pair was measured, and the notes on it."""
    shape = " ".join(f"{name}={value}" for name, value in result.shape.items())
    limit, peer = result.limit, None if result.verdict == "invalid" else result.peer_ratio
    of_peer = "peak memory" if result.goal == "memory" else "time"
    peak = f"{peak_text(limit.resource, limit.peak)} ({limit.source})" if limit else ""
    facts = [
        result.device and f"device: {result.device}",
        result.host and f"host: {result.host}",
        result.size and f"size: {result.size} {shape}",
        result.clock and f"clock: {result.clock}",
        result.tolerance is not None and f"tolerance: {result.tolerance:g} normwise against float64",
        limit and f"limit: {time_text(limit.us)} by {limit.resource}, {peak}",
        result.control and f"control, the baseline against itself: {interval_text(result.control)}",
        peer and f"peer {result.best_peer}: {interval_text(peer)}, its {of_peer} over the optimized one's",
        result.floor_us and f"floor: an empty step takes {time_text(result.floor_us)}",
        result.discarded_blocks and f"blocks discarded: {result.discarded_blocks}",
        _telemetry(result),
        result.seconds and "seconds: " + ", ".join(f"{phase} {s:.2f}" for phase, s in result.seconds.items()),
        result.seed is not None and f"seed: {result.seed}",
        *result.notes,
    ]
    return [fact for fact in facts if fact]


def _telemetry(result: PairResult) -> str:
    """The GPU's state while samples were taken, as medians over the blocks."""
    seen = [block.telemetry for block in result.blocks if block.telemetry]
    units = {"sm_mhz": "MHz SM", "memory_mhz": "MHz memory", "power_w": "W", "temperature_c": "C"}
    read = {unit: [value for one in seen if (value := getattr(one, name)) is not None] for name, unit in units.items()}
    shown = [f"{median(values):.0f} {unit}" for unit, values in read.items() if values]
    return f"GPU while sampling, medians over {len(seen)} blocks: {', '.join(shown)}" if shown else ""


def append_to_job_page(text: str, environment: Mapping[str, str]) -> None:
    """In GitHub Actions, add Markdown to the job's page; elsewhere do nothing."""
    if place := environment.get(STEP_SUMMARY):
        with Path(place).open("a") as file:
            file.write(text)


def chapter_table(results: Sequence[PairResult], mechanisms: bool = False) -> str:
    """The table of a chapter's README: figures name their GPU.

    With `mechanisms`, each line says what its variant does, in the variant's own first sentence.
    """
    measured = sorted({clean(result.device) for result in results if result.device})
    loud = " These are times of a CPU, not of a GPU." * any(result.on_cpu for result in results)
    origin = escaped(f"Measured on {', '.join(measured)}.{loud}") if measured else "Not measured yet."
    return f"{results_table(results, mechanisms)}\n\n{origin}"


def results_table(results: Sequence[PairResult], mechanisms: bool = False) -> str:
    first, *others = COLUMNS
    lines = [_suite_line(row, mechanisms) for result in results for row in rows(result)]
    notes = "\n".join(f"- {escaped(line)}" for line in footers(results))
    drawn = table((first, *["mechanism"] * mechanisms, *others), lines)
    return "\n\n".join(filter(None, (drawn, notes)))


def _suite_line(row: Row, mechanisms: bool) -> list[str]:
    name, verdict, _, *others = row.cells()
    leads, dim = map(escaped, row.gain)
    gain = Markup(f"{leads}{' ' * bool(leads)}<sub>{dim}</sub>" if dim else leads)
    return [Markup("&nbsp;&nbsp;" * row.rung + escaped(name)), *[row.mechanism] * mechanisms, verdict, gain, *others]


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table, its cells escaped but for Markup; shorter lines are filled up."""
    shown = [[cell if isinstance(cell, Markup) else escaped(cell) for cell in line] for line in lines]
    padded = [[*line, *[""] * (len(columns) - len(line))] for line in shown]
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, ["---"] * len(columns), *padded])


def replace_between_markers(text: str, table: str) -> str:
    """The text with the table between its markers in place of what stood there; ValueError if it has not one pair."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the text must hold {BEGIN} and, after it, {END}, once each")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table.strip()}\n{END}{rest.split(END)[1]}"


# What would begin a heading, a list, a quotation or a rule where it is the first on a line.
BLOCK = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|[+-](?:\s|$)|>|[-=]+\s*$))")


def escaped(text: str) -> str:
    """Foreign text as one line that GitHub shows as it is: no cell, tag, link, list, emphasis or formula of its own."""
    shown = re.sub(r"([\\`*\[\]|~])", r"\\\1", clean(text).replace("&", "&amp;").replace("<", "&lt;"))
    shown = re.sub(r"(?<!\w)_+|_+(?!\w)", lambda edge: edge[0].replace("_", r"\_"), shown)  # inside a word it is itself
    return BLOCK.sub(r"\1\\", shown).replace("$", "<span>$</span>")  # a formula stands between dollars, escaped or not


FIELDS = (
    *("chapter", "pair", "device", "host", "size", "clock", "variant", "role", "label", "status", "verdict", "reason"),
    *("speedup", "speedup_low", "speedup_high", "rounds", "memory_ratio", "percent_of_limit", "limit_us", "limit_by"),
    *("peer", "peer_ratio", "kernels", "syncs", "copied_bytes", "peak_bytes", "prepare_s", "first_call_s"),
    *(f"{clock}_{name}" for clock in ("device", "wall") for name in Spread.model_fields),
)


def summary_csv(summary: Summary) -> str:
    """A line for each variant of each pair (a pair without variants has one line), for spreadsheets and scripts."""
    out = io.StringIO()  # pandas would add 0.2 s to every run
    writer = csv.DictWriter(out, FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(variant_fields(pair, row) for pair in summary.pairs for row in (pair.variants or (None,)))
    return out.getvalue()


def variant_fields(pair: PairResult, row: VariantResult | None) -> dict[str, object]:
    """The figures of a variant that may be shown and those of its pair, by the names of columns."""
    one, limit, peer = row or pair, pair.limit, None if pair.verdict == "invalid" else pair.peer_ratio
    fields = pair.model_dump(include={"chapter", "device", "host", "size", "clock"}) | {
        "pair": pair.name,
        "status": one.status,
        "verdict": verdict_text(pair, one),
        "reason": clean(one.reason or pair.reason or ""),
        "limit_us": limit and limit.us,
        "limit_by": limit and limit.resource,
        "limit_source": limit and limit.source,
        "peer": pair.best_peer,
        **interval_fields("peer_ratio", peer),
    }
    if row is None:
        return fields
    fields |= {"variant": row.name, "role": row.role, "label": row.label}
    if not pair.trusted(row):
        return fields
    fields |= row.model_dump(include={"memory_ratio", "percent_of_limit", "prepare_s", "first_call_s"})
    fields |= interval_fields("speedup", row.speedup) | {"rounds": row.speedup and row.speedup.rounds}
    if row.why:
        fields |= row.why.model_dump(include={"kernels", "syncs", "copied_bytes", "peak_bytes"})
    for clock, spread in (("device", row.device), ("wall", row.wall)):
        fields |= {f"{clock}_{name}": value for name, value in (spread.model_dump() if spread else {}).items()}
    return fields


def interval_fields(name: str, found: Interval | None) -> dict[str, object]:
    """`speedup`, `speedup_low` and `speedup_high`; nothing of an interval that there is not."""
    return {name: found.ratio, f"{name}_low": found.low, f"{name}_high": found.high} if found else {}
