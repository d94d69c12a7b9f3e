"""A held run as CSV: a line a pair with its status, both sides' figures, and what differs around them."""

import csv
import io
from collections.abc import Sequence

from common.python import environment
from common.python.expectation_check import Held, median_us, sides
from common.python.expectations import Time
from common.python.judgement import headline_row
from common.python.report import trusted
from common.python.results import Interval, Manifest, PairResult
from common.python.text import clean

PLAIN = ("chapter", "pair", "status", "reason", "gpu", "size", "clock", "goal", "variant")
SIDE = (
    *("speedup", "speedup_low", "speedup_high", "memory_ratio", "baseline_us", "optimized_us", "time_low", "time_high"),
    *("limit_us", "limit_by", "limit_source", "baseline_percent_of_limit", "percent_of_limit"),
    *("peer", "peer_ratio", "peer_ratio_low", "peer_ratio_high", "sm_mhz", "commit", "measured"),
)
OVER_RUNS = ("expected_memory_ratio_low", "expected_memory_ratio_high")  # one run has no interval of memory
FIELDS = (*PLAIN, "differences", "expected_runs", *SIDE, *(f"expected_{name}" for name in SIDE), *OVER_RUNS)


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
    fields |= {"variant": own.name if own else None, "differences": "; ".join(row.differences)}
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
