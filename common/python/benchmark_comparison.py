"""Two results beside each other, metric by metric: the change in percent, and whether it is for the better.

Which way is better is read off a metric's name and unit by `RULES`. A name that no rule knows is shown and not judged.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from common.python.base.results import VariantResult
from common.python.base.text import clean
from common.python.report.rows import bytes_text, time_text
from common.python.report.tables import text_table, wide_console
from common.python.stats.intervals import MARGIN

Group = Literal["timing", "memory", "throughput", "profiler", "other"]
Better = Literal["lower", "higher"]
Judgement = Literal["better", "same", "worse"]
Metrics = Mapping[str, float | None]

GROUPS: tuple[Group, ...] = ("timing", "memory", "throughput", "profiler", "other")
HEADLINE = ("median", "p95", "p99")
STYLES = {"better": "green", "same": "yellow", "worse": "red"}
# The first rule with a word of the name decides, so what is said outright ("miss", "saved") comes before what is being
# measured ("memory") and a rate before the unit in it ("GB/s" is no memory).
RULES: tuple[tuple[Group, Better | None, str], ...] = (
    ("profiler", "lower", "miss misses stall stalls stalled conflict conflicts spill spills evictions replays"),
    ("profiler", "lower", "divergence"),
    ("other", "lower", "error errors failure failures drop drops dropped outliers energy joules"),
    ("memory", None, "memory_utilization memory_utilisation"),  # of its bandwidth or of its size?
    ("profiler", "higher", "hit hits occupancy utilization utilisation efficiency mfu sm_busy"),
    ("profiler", "higher", "pct_of_peak percent_of_peak percent_of_limit"),
    ("memory", "higher", "saved saving savings reduction memory_ratio"),
    ("throughput", "higher", "throughput bandwidth goodput speedup gbps gflops tflops fps qps rps iops"),
    ("profiler", "lower", "kernels launches syncs synchronizations synchronisations operators copies transfers copied"),
    ("timing", "lower", "time latency duration elapsed runtime overhead ttft tpot std ns us ms s sec secs seconds"),
    ("timing", "lower", "minutes"),
    ("memory", "lower", "bytes kb mb gb tb kib mib gib memory mem allocated reserved footprint vram rss"),
)
PER_TIME = re.compile(r"(/|(^|_)per_)(s|sec|second|us|ms|minute|hour)(?![a-z0-9])")  # also in tokens/s/GPU


@dataclass(frozen=True)
class Change:
    """One metric on both sides, null where a side lacks it."""

    metric: str
    group: Group
    better: Better | None
    baseline: float | None
    optimized: float | None
    percent: float | None  # of the baseline's size; null where there is none to speak of
    judgement: Judgement | None  # null where no rule knows the metric or a side is no finite number


@dataclass(frozen=True)
class Comparison:
    """All changes, and what there is to say of a side whose numbers may not be compared."""

    chapter: str
    name: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    def judged(self, judgement: Judgement) -> tuple[str, ...]:
        """The metrics with this judgement."""
        return tuple(change.metric for change in self.changes if change.judgement == judgement)


def compare_and_display_all_metrics(
    *,
    baseline_result: VariantResult | Metrics,
    optimized_result: VariantResult | Metrics,
    name: str,
    chapter: str,
    include_raw_metrics: bool = False,
) -> Comparison:
    """Compare two results, print the table, and return what it shows.

    A result is a variant's, or a mapping of metric names to numbers (`{"latency_ms": 3.1, "tokens/s": 900.0}`) in which
    None is a metric that is missing. `include_raw_metrics` adds the rest of a variant's statistics (mean, standard
    deviation, quartiles, count, outliers) to its median and tails; of a mapping everything is always shown. Raises
    TypeError for a metric that is no number.
    """
    sides = (("baseline", baseline_result), ("optimized", optimized_result))
    notes = [_doubt(side, one) for side, one in sides if isinstance(one, VariantResult) and not one.sound]
    before, after = (_metrics_of(side, one, include_raw_metrics) for side, one in sides)
    changes = [change(metric, before.get(metric), after.get(metric)) for metric in {**before, **after}]
    changes.sort(key=lambda found: GROUPS.index(found.group))
    comparison = Comparison(chapter, name, tuple(changes), tuple(notes))
    wide_console().print(comparison_table(comparison))
    return comparison


def _metrics_of(side: str, given: VariantResult | Mapping[str, Any], raw: bool) -> Metrics:
    if isinstance(given, VariantResult):
        return _of_variant(given, raw) if given.sound else {}
    for metric, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise TypeError(f"metric {metric!r} of {side}_result is {value!r}: a number or None is needed")
    return {metric: None if value is None else float(value) for metric, value in given.items()}


def _doubt(side: str, result: VariantResult) -> str:
    """Why numbers of a variant may not be compared: nothing proved them, or something speaks against them."""
    became = result.verdict if result.status == "measured" else result.status
    return f"{side} is {became}, so it has no numbers to compare" + (f": {result.reason}" if result.reason else "")


def _of_variant(result: VariantResult, raw: bool) -> dict[str, float | None]:
    """Named so that the rules know them: `device_median_us`, `GB/s`, `kernels`."""
    found: dict[str, float | None] = {}
    for clock, spread in (("device", result.device), ("wall", result.wall)):
        for name, value in (spread.model_dump() if spread else {}).items():
            if raw or name in HEADLINE:
                found[f"{clock}_{name}" + "_us" * (name not in ("n", "outliers"))] = value
    found |= {"prepare_s": result.prepare_s, "first_call_s": result.first_call_s, **result.rates}
    found["percent_of_limit"] = result.percent_of_limit
    if why := result.why:
        found |= why.model_dump(include={"kernels", "operators", "syncs", "busy_us", "copied_bytes"})
        found["peak_memory_bytes"] = why.peak_bytes
    if seen := result.speed_of_light:
        found |= {"dram_percent_of_peak": seen.dram_percent, "sm_percent_of_peak": seen.sm_percent}
        found["occupancy"] = seen.occupancy_percent
    errors = [proof.error for proof in result.proofs if proof.error is not None]
    if raw and errors:
        found["largest_error"] = max(errors)
    return {metric: value for metric, value in found.items() if value is not None}


def judge_name(metric: str) -> tuple[Group, Better | None]:
    """The group of a metric and which way is better; ("other", None) for a name that no rule knows."""
    name = "_".join(re.findall(r"[a-z0-9/]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z][A-Za-z])", "_", metric).lower()))
    words = set(name.replace("/", "_").split("_"))
    for group, better, known in RULES:
        if group == "throughput" and PER_TIME.search(name):
            return group, better
        if any(word in words or ("_" in word and word in name) for word in known.split()):
            return group, better
    return "other", None


def change(metric: str, baseline: float | None, optimized: float | None) -> Change:
    """The change of one metric. Within the margin of a verdict, 1%, it is `same`."""
    group, better = judge_name(metric)
    if baseline is None or optimized is None or not all(map(math.isfinite, (baseline, optimized))):
        return Change(metric, group, better, baseline, optimized, percent=None, judgement=None)
    share = (optimized / baseline - 1) * math.copysign(1, baseline) if baseline else math.copysign(math.inf, optimized)
    share = 0.0 if optimized == baseline else share
    gain = (optimized > baseline) == (better == "higher")
    judgement: Judgement = "same" if abs(share) <= MARGIN else "better" if gain else "worse"
    percent = 100 * share if math.isfinite(share) else None  # of nothing there is no share
    return Change(metric, group, better, baseline, optimized, percent, judgement if better else None)


def comparison_table(comparison: Comparison) -> Table:
    """A line a metric, grouped."""
    lines, last = list[list[str | Text]](), None
    for found in comparison.changes:
        judged = found.judgement or "not judged"
        values = [value_text(found.metric, value) for value in (found.baseline, found.optimized)]
        cells = [found.group if found.group != last else "", found.metric, *values, percent_text(found)]
        lines.append([*cells, found.better or "unknown", Text(judged, style=STYLES.get(judged, "dim"))])
        last = found.group
    title = f"{comparison.chapter}:{comparison.name}, baseline against optimized"
    numbers = ("baseline", "optimized", "change")
    columns = ("", "metric", *numbers, "better is", "judgement")
    return text_table(columns, lines, title, "\n".join(map(clean, comparison.notes)), right=numbers)


def value_text(metric: str, value: float | None) -> str:
    """Times and bytes in the unit that suits; all else with four digits, `nan` and `inf` as what they are."""
    if value is None:
        return "missing"
    if math.isfinite(value) and value >= 0 and metric.endswith(("_us", "_bytes")):
        return time_text(value) if metric.endswith("_us") else bytes_text(value)
    return f"{value:.4g}"


def percent_text(found: Change) -> str:
    if found.percent is not None:
        return f"{found.percent:+.1f}%"
    return "from zero" if found.baseline == 0 and math.isfinite(found.optimized or math.nan) else ""
