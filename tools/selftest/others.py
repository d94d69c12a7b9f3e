"""Experiment 3: the harness against what people use today, on the same code at equal time.

Both sides of every pair are the same code, so that a ratio that is not 1 is an error of the method.
"""

import math
from collections import Counter
from pathlib import Path
from statistics import fmean, median, stdev

from common.python.stats.verdict import times
from common.python.workers.process import WorkerError, one_worker
from tools.selftest.aa import subjects
from tools.selftest.binomial import clopper_pearson
from tools.selftest.models import Others, Promise, Timing, standing
from tools.selftest.sessions import Bench, in_turn, lay_runnable, record
from tools.selftest.tree import Laid

OURS = "this harness"
FIRST = ("ch07:transpose", "ch01:cuda_graph", "ch01:gemm", "ch18:flash_forward")  # where there is no time for all
FEWEST_REPEATS = 10  # of each method on each pair, for a promise
DIFFERENT = 0.01  # what a reader would take for a difference
CLEARLY = 1.645  # standard errors: 95% on one side
LIMIT_S = 60.0  # of all other methods on a pair
TIMED = ("prepare", "warm-up", "samples")  # phases of a session; the other methods prove and profile nothing


def experiment(bench: Bench, scratch: Path) -> Others:
    """Every method on every pair, as often as the form says or the time allows."""
    chosen = sorted(subjects(bench.gpu), key=lambda subject: subject.key not in FIRST)[: bench.form.others_pairs]
    ready, skipped = lay_runnable(bench, scratch, chosen, [0.0])
    found = Others(timings=[], skipped=skipped)
    if not bench.gpu:
        found.skipped["triton do_bench"] = "it times GPUs only"
    for repeat, laid in in_turn(bench, "others", ready, bench.form.repeats):
        if laid.pair.key not in found.skipped:
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
        with one_worker(laid.root, bench.log, bench.seed) as worker:
            theirs = worker.call("call", LIMIT_S, module="tools.selftest.methods", function="compare", **asked)
    except WorkerError as error:
        found.skipped[key] = error.reason
        return
    found.timings += [Timing(pair=key, repeat=repeat, **line) for line in (ours, *theirs)]


def promises(found: Others) -> list[Promise]:
    """Ours has the smallest spread of the ratio on every pair, and the fewest false differences."""
    logs: dict[str, dict[str, list[float]]] = {}  # of the ratios, by pair and method, in the order first met
    for timing in found.timings:
        logs.setdefault(timing.pair, {}).setdefault(timing.method, []).append(math.log(timing.ratio))
    said = [_spread(pair, methods) for pair, methods in logs.items()]
    said.append(_differences(found.timings))
    said[-1].note = "; ".join(f"{what}: {why}" for what, why in found.skipped.items()) or None
    return said


def _spread(pair: str, logs: dict[str, list[float]]) -> Promise:
    """Kept where no method spreads less; refuted where one clearly does; else undecided.

    The log ratio of two standard deviations, of n and m values, has an error of sqrt(1/(2(n-1)) + 1/(2(m-1))).
    """
    spreads = {method: stdev(taken) for method, taken in logs.items() if len(taken) > 1}
    best = min((method for method in spreads if method != OURS), key=lambda method: spreads[method], default=OURS)
    ours, least = spreads.get(OURS, 0.0), spreads.get(best, 0.0)
    n, m = len(logs.get(OURS, ())), len(logs.get(best, ()))
    error = math.sqrt(0.5 / max(1, n - 1) + 0.5 / max(1, m - 1))
    told = "; ".join(f"{name} {spread:.2%} (bias {fmean(logs[name]):+.2%})" for name, spread in spreads.items())
    return Promise(
        experiment="others",
        promise=f"{pair}: the smallest spread of the ratio at equal time",
        bound="no method spreads less",
        measured=told,
        standing=standing(
            tried=OURS in spreads and best != OURS,
            kept=ours <= least and min(n, m) >= FEWEST_REPEATS,
            refuted=least < ours * math.exp(-CLEARLY * error),
        ),
    )


def _differences(timings: list[Timing]) -> Promise:
    """Kept where no method has a smaller share of false differences; refuted where ours is clearly larger."""
    trials = Counter(timing.method for timing in timings)
    wrong = Counter(timing.method for timing in timings if abs(timing.ratio - 1) > DIFFERENT)
    ours, n = wrong[OURS], trials[OURS]
    best = min((wrong[method] / trials[method] for method in trials if method != OURS), default=0.0)
    few = min(Counter((timing.pair, timing.method) for timing in timings).values(), default=0) < FEWEST_REPEATS
    return Promise(
        experiment="others",
        promise="fewest ratios of equal sides that are over 1% from 1",
        bound="no method has fewer",
        measured=", ".join(f"{method} {wrong[method]} of {n}" for method, n in trials.items()),
        standing=standing(
            tried=n > 0 and len(trials) > 1,
            kept=ours / max(1, n) <= best and not few,
            refuted=n > 0 and clopper_pearson(ours, n)[0] > best,
        ),
    )
