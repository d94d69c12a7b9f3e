"""Experiment 3: the harness against what people use today, on the same code at equal time.

Both sides of every pair are the same code, so that a ratio that is not 1 is an error of the method.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from common.python.stats.verdict import times
from common.python.workers.process import WorkerError
from tools.selftest.aa import subjects
from tools.selftest.binomial import clopper_pearson
from tools.selftest.models import Others, Promise, Standing, Timing
from tools.selftest.sessions import Bench, not_runnable, record
from tools.selftest.tree import Laid, lay_lanes

OURS = "this harness"
FIRST = ("ch07:transpose", "ch01:cuda_graph", "ch01:gemm", "ch18:flash_forward")  # where there is no time for all
FEWEST_REPEATS = 10  # of each method on each pair, for a promise
DIFFERENT = 0.01  # what a reader would take for a difference
CLEARLY = 1.645  # standard errors: 95% on one side
LIMIT_S = 60.0  # of all other methods on a pair
TIMED = ("prepare", "warm-up", "samples")  # phases of a session; the other methods prove and profile nothing


def experiment(bench: Bench, scratch: Path) -> Others:
    """Every method on every pair, as often as the form says or the time allows."""
    found, ready = Others(timings=[]), []
    for subject in sorted(subjects(bench.gpu), key=lambda s: s.key not in FIRST)[: bench.form.others_pairs]:
        laid = lay_lanes(scratch, subject, [0.0])
        if reason := not_runnable(bench, laid):
            found.skipped[subject.key] = reason
        else:
            ready.append(laid)
    if not bench.gpu:
        found.skipped["triton do_bench"] = "it times GPUs only"
    for repeat in range(bench.form.repeats):
        for laid in ready:
            if found.timings and bench.out_of_time():
                return found
            if laid.pair.key not in found.skipped:
                bench.say(f"others: {laid.pair.key}, repeat {repeat + 1} of {bench.form.repeats}")
                _compare(bench, laid, repeat, found)
    return found


def _compare(bench: Bench, laid: Laid, repeat: int, found: Others) -> None:
    """A session, then every other method in a worker, with as much time each. A pair that fails has no more turns."""
    key, modules = laid.pair.key, [variant.module for variant in laid.pair.variants]
    about, result = record(bench, laid, bench.folder / "others")
    interval = about.outcomes[0].interval if about.outcomes else None
    if interval is None:
        found.skipped[key] = about.failed or "the session took no samples"
        return
    a_us, b_us = (median(times(result.blocks, v.name, result.clock or "device")) for v in laid.pair.variants)
    seconds = sum(result.seconds.get(phase, 0.0) for phase in TIMED)
    ours = {"method": OURS, "a_us": a_us, "b_us": b_us, "ratio": interval.ratio, "seconds": seconds}
    asked = {"modules": modules, "size": bench.size, "seconds": seconds, "seed": bench.seed + repeat}
    try:
        with bench.worker(laid.root) as worker:
            theirs = worker.call("call", LIMIT_S, module="tools.selftest.methods", function="compare", **asked)
    except WorkerError as error:
        found.skipped[key] = error.reason
        return
    found.timings += [Timing(pair=key, repeat=repeat, **line) for line in (ours, *theirs)]


@dataclass(frozen=True)
class Row:
    """One method on one pair. Bias and spread are of the log ratio, so 0.01 is 1%."""

    pair: str
    method: str
    n: int
    bias: float
    spread: float | None  # none for a single comparison
    different: int  # ratios more than 1% from 1
    seconds: float  # mean of one comparison


def table(timings: list[Timing]) -> list[Row]:
    """A row for each method on each pair, in the order in which they were first met."""
    groups: dict[tuple[str, str], list[Timing]] = {}
    for timing in timings:
        groups.setdefault((timing.pair, timing.method), []).append(timing)
    return [_row(pair, method, taken) for (pair, method), taken in groups.items()]


def _row(pair: str, method: str, taken: list[Timing]) -> Row:
    logs = [math.log(timing.ratio) for timing in taken]
    return Row(
        pair=pair,
        method=method,
        n=len(taken),
        bias=fmean(logs),
        spread=stdev(logs) if len(logs) > 1 else None,
        different=sum(abs(timing.ratio - 1) > DIFFERENT for timing in taken),
        seconds=fmean(timing.seconds for timing in taken),
    )


def promises(found: Others) -> list[Promise]:
    """Ours has the smallest spread of the ratio on every pair, and the fewest false differences."""
    rows = table(found.timings)
    pairs = dict.fromkeys(row.pair for row in rows)
    said = [_spread(pair, [row for row in rows if row.pair == pair]) for pair in pairs]
    said.append(_differences(rows))
    said[-1].note = "; ".join(f"{what}: {why}" for what, why in found.skipped.items()) or None
    return said


def _spread(pair: str, rows: list[Row]) -> Promise:
    """Kept where no method spreads less; refuted where one clearly does; else undecided."""
    ours = next((row for row in rows if row.method == OURS and row.spread is not None), None)
    best = min((r for r in rows if r.method != OURS and r.spread is not None), key=_spread_of, default=None)
    standing: Standing = "not run"
    if ours is not None and best is not None:
        standing = "kept" if min(ours.n, best.n) >= FEWEST_REPEATS else "undecided"
        if _spread_of(best) < _spread_of(ours):
            standing = "refuted" if _clearly_less(best, ours) else "undecided"
    cells = (
        f"{row.method} {'-' if row.spread is None else f'{row.spread:.2%}'} (bias {row.bias:+.2%}, "
        f"{row.different} of {row.n} over 1%, {row.seconds:.2f} s)"
        for row in rows
    )
    return Promise(
        experiment="others",
        promise=f"{pair}: the smallest spread of the ratio at equal time",
        measured="; ".join(cells) or "-",
        bound="no method spreads less",
        standing=standing,
    )


def _spread_of(row: Row) -> float:
    return row.spread or 0.0


def _clearly_less(one: Row, other: Row) -> bool:
    """Whether the smaller spread is smaller by more than chance would have it.

    The log ratio of two standard deviations, of n and m values, has an error of sqrt(1/(2(n-1)) + 1/(2(m-1))).
    """
    if not one.spread:
        return True
    error = math.sqrt(0.5 / (one.n - 1) + 0.5 / (other.n - 1))
    return math.log(_spread_of(other) / one.spread) > CLEARLY * error


def _differences(rows: list[Row]) -> Promise:
    """Kept where no method has a smaller share of false differences; refuted where ours is clearly larger."""
    methods = list(dict.fromkeys(row.method for row in rows))
    counts = {method: sum(row.different for row in rows if row.method == method) for method in methods}
    trials = {method: sum(row.n for row in rows if row.method == method) for method in methods}
    best = min((counts[method] / trials[method] for method in methods if method != OURS), default=None)
    standing: Standing = "not run"
    if OURS in counts and best is not None:
        standing = "kept" if min(row.n for row in rows) >= FEWEST_REPEATS else "undecided"
        if counts[OURS] / trials[OURS] > best:
            clear = clopper_pearson(counts[OURS], trials[OURS])[0] > best
            standing = "refuted" if clear else "undecided"
    return Promise(
        experiment="others",
        promise="fewest ratios of equal sides that are over 1% from 1",
        measured=", ".join(f"{method} {counts[method]} of {trials[method]}" for method in methods) or "-",
        bound="no method has fewer",
        standing=standing,
    )
