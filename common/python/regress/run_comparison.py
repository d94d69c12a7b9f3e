"""Two runs beside each other, pair by pair: times between the runs, where drift counts, and speedups within each."""

import json
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from common.python.base.results import Interval, Manifest, PairResult, VariantResult, Verdict
from common.python.base.text import clean
from common.python.regress import environment
from common.python.report.artifacts import Run, read_run
from common.python.report.rows import gain_text, if_known, interval_text, time_text, verdict_text
from common.python.report.tables import text_table, wide_console
from common.python.stats.intervals import MARGIN, of_logs, round_log_ratios, round_log_times, t_95, verdict

WARNING = (
    "warning: the runs were not taken in turns, so drift is not controlled: clocks, heat and neighbours that changed "
    "between them are in the ratios of times; only a speedup was measured against something in the same run"
)

PLACES = ("artifacts_dir", "resume")  # options that say where results go


@dataclass(frozen=True)
class VariantChange:
    """One variant in both runs. Times are medians in microseconds; None is what may not or cannot be compared."""

    pair: str
    variant: str
    a_us: float | None = None
    b_us: float | None = None
    ratio: Interval | None = None  # a's time over b's
    reads: Verdict | None = None  # of b against a, with the margin of 1%
    a_gain: str = ""
    b_gain: str = ""
    gain: Interval | None = None  # b's speedup over a's
    reason: str = ""  # why there are no ratios


@dataclass(frozen=True)
class RunComparison:
    """All changes, with what differs around them and what one of the runs lacks."""

    a: str
    b: str
    differences: list[str]
    only_a: list[str]
    only_b: list[str]
    changes: list[VariantChange]
    warning: str = WARNING


def compare_runs(a: Run, b: Run) -> RunComparison:
    """Every pair, and every variant of it, that both runs have."""
    in_a, in_b = ({pair.key: pair for pair in run.summary.pairs} for run in (a, b))
    only_a, only_b = _only(in_a, in_b), _only(in_b, in_a)
    both = [(pair, in_b[key]) for key, pair in in_a.items() if key in in_b]
    changes = []
    for then, now in both:
        rows, others = ({row.name: row for row in pair.variants} for pair in (then, now))
        only_a += _only(rows, others)
        only_b += _only(others, rows)
        changes += [_change(then, now, row, others[name]) for name, row in rows.items() if name in others]
    differ = [*environment.differences(_facts(a), _facts(b)), *_sources(a.summary.manifest, b.summary.manifest)]
    return RunComparison(str(a.folder), str(b.folder), [*differ, *_readings(both)], only_a, only_b, changes)


def _only(here: Iterable[str], there: Container[str]) -> list[str]:
    return [clean(name) for name in here if name not in there]


def _change(a: PairResult, b: PairResult, in_a: VariantResult, in_b: VariantResult) -> VariantChange:
    pair, variant = clean(a.key), clean(in_a.name)
    lacking: dict[tuple[str, str], str] = {}
    for side, result, row in (("A", a, in_a), ("B", b, in_b)):
        if not result.trusted(row):
            told = verdict_text(result, row), clean(row.reason or "")
            lacking[told] = "both" if told in lacking else side
    wrong = [f"{verdict} in {side}{': ' * bool(why)}{why}" for (verdict, why), side in lacking.items()]
    if (a.size, a.shape, a.clock) != (b.size, b.shape, b.clock):
        wrong.append("another size, shape or clock")
    a_times, b_times = a.spread(in_a), b.spread(in_b)
    if wrong or a_times is None or b_times is None:
        return VariantChange(pair, variant, reason="; ".join(wrong) or "no times")
    clock = a.clock or "device"
    ratio = welch(round_log_times(a.blocks, in_a.name, clock), round_log_times(b.blocks, in_b.name, clock))
    gain = None if a.goal == "memory" else welch(_log_gains(b, in_b.name), _log_gains(a, in_a.name))
    gains = gain_text(a, in_a), gain_text(b, in_b)
    return VariantChange(pair, variant, a_times.median, b_times.median, ratio, verdict(ratio), *gains, gain)


def _log_gains(result: PairResult, variant: str) -> list[float]:
    baseline = result.baseline
    if baseline is None or baseline.name == variant:
        return []
    return round_log_ratios(result.blocks, baseline.name, variant, result.clock or "device")


def welch(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """The ratio of two sets of unpaired rounds, given their log times, with Welch's 95% t interval.

    None where a side has fewer than two rounds; `rounds` is the smaller count. The degrees of freedom are rounded
    down, which widens the interval.
    """
    fewer = min(len(above), len(below))
    if fewer < 2:
        return None
    shares = [(float(np.var(side, ddof=1)) / len(side), len(side) - 1) for side in (above, below)]
    variance = sum(share for share, _ in shares)
    df = variance**2 / sum(share**2 / own for share, own in shares) if variance > 0 else fewer - 1
    return of_logs(float(np.mean(above) - np.mean(below)), t_95(int(df)) * math.sqrt(variance), fewer)


def _facts(run: Run) -> dict[str, str | None]:
    about = run.summary.manifest
    known = environment.facts_of_run(about, environment.device_of(run.summary))
    known |= {name: version for name, version in about.versions.items() if name not in known}
    uuid = about.machine.gpus[0].uuid if about.machine.gpus else None
    known |= {"GPU's UUID": uuid, "host": about.machine.hostname, "system": about.machine.system}
    known |= {"cores": str(about.machine.cores), "commit": about.git_commit}
    known |= {"uncommitted changes": None if about.git_dirty is None else "yes" if about.git_dirty else "no"}
    known |= environment.options(about, PLACES)
    return known | {f"environment {name}": value for name, value in about.environment.items()}


def _sources(a: Manifest, b: Manifest) -> list[str]:
    """Files whose contents differ. Those that only one of the runs names are of pairs that the other lacks."""
    names = [name for name in a.sources if name in b.sources and a.sources[name] != b.sources[name]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return [f"sources changed: {', '.join(map(clean, names[:5]))}{more}"] if names else []


def _readings(both: Sequence[tuple[PairResult, PairResult]]) -> list[str]:
    """The SM clock and the host's pace, over the pairs that both runs have."""
    a, b = ([block for pair in side for block in pair.blocks] for side in (zip(*both) if both else ((), ())))
    clock = environment.moved("SM clock", environment.sm_mhz(a), environment.sm_mhz(b), 1 + MARGIN, "MHz")
    pace = environment.moved("host pace", environment.pace_us(a), environment.pace_us(b), 1 + MARGIN, "us")
    return clock + pace


def print_comparison(a: Path, b: Path, as_json: bool) -> None:
    """Compare two run folders before the user's eyes. Raises ValueError, in one line, for one that is unreadable."""
    found = compare_runs(read_run(a), read_run(b))
    if as_json:
        print(json.dumps(asdict(found), indent=1, default=lambda model: model.model_dump()))
        return
    for name, folder in (("A", found.a), ("B", found.b)):
        print(f"{name}: {folder}")
    for line in found.differences or ["nothing that is recorded"]:
        print(f"differs: {line}")
    for name, only in (("A", found.only_a), ("B", found.only_b)):
        for key in only:
            print(f"only in {name}: {key}")
    if found.changes:
        wide_console().print(runs_table(found))
    else:
        print("no pair is in both runs")
    print(found.warning)


def runs_table(found: RunComparison) -> Table:
    """A line a variant."""
    lines, last = [], None
    for one in found.changes:
        times = " -> ".join(if_known(us, time_text) for us in (one.a_us, one.b_us))
        gains = f"{one.a_gain} -> {one.b_gain}" if one.a_gain or one.b_gain else ""
        shown = (one.reason or times, if_known(one.ratio, interval_text), one.reads or "", gains)
        pair = one.pair if one.pair != last else ""
        lines.append([pair, one.variant, *shown, if_known(one.gain, interval_text)])
        last = one.pair
    columns = ("pair", "variant", "time A -> B", "A over B", "B reads", "speedup A -> B", "B's over A's")
    return text_table(columns, lines, whole=("pair",))
