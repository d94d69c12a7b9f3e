"""A held run as CSV, a line a pair with all its figures; in two lines that count; and as Markdown for a job's page."""

import csv
import io
from collections import Counter
from collections.abc import Sequence

from common.python.base.results import Interval, Manifest, PairResult
from common.python.base.text import clean
from common.python.regress import environment
from common.python.regress.check import LOSS, STATUSES, Held, median_us, sides
from common.python.regress.expectations import Time
from common.python.report.markdown import escaped
from common.python.report.rows import trusted
from common.python.stats.verdict import headline_row

PLAIN = ("chapter", "pair", "status", "reason", "gpu", "size", "clock", "goal", "variant")
SIDE = (
    *("speedup", "speedup_low", "speedup_high", "memory_ratio", "baseline_us", "optimized_us", "time_low", "time_high"),
    *("limit_us", "limit_by", "limit_source", "baseline_percent_of_limit", "percent_of_limit"),
    *("peer", "peer_ratio", "peer_ratio_low", "peer_ratio_high", "sm_mhz", "commit", "measured"),
)
OVER_RUNS = ("expected_memory_ratio_low", "expected_memory_ratio_high")  # one run has no interval of memory
HELD = ("smallest_loss_percent", "differences", "expected_runs")
FIELDS = (*PLAIN, *HELD, *SIDE, *(f"expected_{name}" for name in SIDE), *OVER_RUNS)
HELD_AGAINST = ("met", "improved", "regressed", "inconclusive")  # the statuses of what was measured and expected
LOSSES = (LOSS, 0.1, 0.3)


def counts(rows: Sequence[Held]) -> str:
    """`40 met, 2 regressed, 14 inconclusive`."""
    found = Counter(row.status for row in rows)
    return ", ".join(f"{found[status]} {status}" for status in STATUSES if found[status]) or "no pairs"


def sight(rows: Sequence[Held]) -> str | None:
    """How many pairs could have shown a loss at all: 3% hides where runs differ by more. None if none was held."""
    seen = [row.smallest_loss for row in rows if row.status in HELD_AGAINST]
    if not seen:
        return None
    first, *others = [(f"{loss:.0%}", sum(one is not None and one <= loss for one in seen)) for loss in LOSSES]
    told = [f"a loss of {first[0]} would show in {first[1]} of {len(seen)} pairs held against expectations"]
    return ", ".join(told + [f"one of {loss} in {count}" for loss, count in others])


def job_page(rows: Sequence[Held], title: str) -> str:
    """What a job's page says of a held run: the counts, what could have shown, and a line for each pair not met."""
    lines = ["## Held against expectations", escaped(f"{title}: {counts(rows)}")]
    lines += [escaped(told)] if (told := sight(rows)) else []
    table = ["| pair | status | why | smallest loss that would show |", "| --- | --- | --- | --- |"]
    for row in rows:
        if row.status != "met":
            shows = "" if row.smallest_loss is None else f"{row.smallest_loss:.1%}"
            cells = (row.key, row.status, "; ".join(filter(None, [row.reason, *beside(row)])), shows)
            table.append(f"| {' | '.join(map(escaped, cells))} |")
    return "\n\n".join([*lines, "\n".join(table)] if len(table) > 2 else lines) + "\n"


def beside(row: Held) -> list[str]:
    """The differences that its reason does not name already."""
    return [difference for difference in row.differences if difference not in row.reason]


def proof_csv(rows: Sequence[Held], about: Manifest) -> str:
    """A line a pair: its status, both intervals, both times, both limits, and what differs around them."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_fields(row, about) for row in rows)
    return out.getvalue()


def _fields(row: Held, about: Manifest) -> dict[str, object]:
    either = row.found or (row.expected.result if row.expected else None)
    own = headline_row(either) if either else None
    chapter, name = row.key.split(":", 1)
    fields: dict[str, object] = {"chapter": chapter, "pair": clean(name), "status": row.status, "reason": row.reason}
    if either:
        fields |= {"gpu": either.device, "size": either.size, "clock": either.clock, "goal": either.goal}
    smallest = None if row.smallest_loss is None else 100 * row.smallest_loss
    fields |= {"variant": own.name if own else None, "smallest_loss_percent": smallest}
    fields["differences"] = "; ".join(row.differences)
    if row.found:
        fields |= _side(row.found, own.speedup if own else None, row.time, environment.sm_mhz(row.found.blocks))
        fields |= {"commit": about.git_commit, "measured": about.started}
    if then := row.expected:
        side = _side(then.result, then.gain, then.time, then.sm_mhz)
        if over := then.memory_ratio:
            side |= {"memory_ratio": over.ratio, "memory_ratio_low": over.low, "memory_ratio_high": over.high}
        side |= {"commit": then.commit, "measured": then.measured}
        fields |= {"expected_runs": then.runs} | {f"expected_{name}": value for name, value in side.items()}
    return {name: clean(value) if isinstance(value, str) else value for name, value in fields.items()}


def _side(result: PairResult, gain: Interval | None, time: Time | None, sm_mhz: float | None) -> dict[str, object]:
    own, baseline = sides(result)
    if own is None or not trusted(result, own):
        return {}
    peer, limit = result.peer_ratio, result.limit
    return {
        "speedup": gain and gain.ratio,
        "speedup_low": gain and gain.low,
        "speedup_high": gain and gain.high,
        "memory_ratio": own.memory_ratio,
        "baseline_us": median_us(result, baseline),
        "optimized_us": median_us(result, own),
        "time_low": time and time.low,
        "time_high": time and time.high,
        "limit_us": limit and limit.us,
        "limit_by": limit and limit.resource,
        "limit_source": limit and limit.source,
        "baseline_percent_of_limit": baseline and baseline.percent_of_limit,
        "percent_of_limit": own.percent_of_limit,
        "peer": result.best_peer if peer else None,
        "peer_ratio": peer and peer.ratio,
        "peer_ratio_low": peer and peer.low,
        "peer_ratio_high": peer and peer.high,
        "sm_mhz": sm_mhz,
    }
