"""Experiment 3: the harness against what people use today, on the same code at equal time.

Both sides of every pair are the same code, so that a ratio that is not 1 is an error of the method.
"""

import math
from pathlib import Path
from statistics import median
from typing import Any

import numpy
import pandas

from common.python.base.journal import write
from common.python.stats.verdict import times
from common.python.workers.process import WorkerError
from tools.selftest.promises import Promise, clopper_pearson, standing
from tools.selftest.sessions import Bench, in_turn, lay_runnable, record
from tools.selftest.tree import Laid, subjects

OURS = "this harness"
FIRST = ("transpose", "cuda_graph", "triton_persistent_matmul", "flash_forward")  # where there is no time for all
FEWEST_REPEATS = 10  # of each method on each pair, for a promise
DIFFERENT = 0.01  # what a reader would take for a difference
CLEARLY = 1.645  # standard errors: 95% on one side
TIMED = ("prepare", "warm-up", "samples")  # phases of a session; the other methods prove and profile nothing
COLUMNS = ["pair", "repeat", "method", "a_us", "b_us", "ratio", "seconds"]


def experiment(bench: Bench, scratch: Path) -> list[Promise]:
    """Every method on every pair, as often as the form says or the time allows. A pair that fails has no more turns."""
    first = sorted(subjects(bench.gpu), key=lambda path: path.stem.partition("_")[2] not in FIRST)
    ready = lay_runnable(bench, scratch, first[: bench.form.others_pairs], [0.0])
    timings, skipped = list[dict[str, Any]](), {} if bench.gpu else {"triton do_bench": "it times GPUs only"}
    for repeat, laid in in_turn(bench, "others", ready, bench.form.repeats):
        key = laid.pair.key
        if key not in skipped:
            try:
                timings += [{"pair": key, "repeat": repeat} | line for line in _compare(bench, laid, repeat)]
            except WorkerError as error:
                skipped[key] = str(error)
    frame = pandas.DataFrame(timings, columns=COLUMNS)
    write(bench.folder / "others" / "timings.csv", frame.to_csv(index=False))
    return promises(frame, skipped)


def _compare(bench: Bench, laid: Laid, repeat: int) -> list[dict[str, Any]]:
    """A session, then every other method in a worker, with as much time each. Raises WorkerError."""
    (about,), result = record(bench, laid, bench.folder / "others")
    if about.interval is None:
        raise WorkerError(OURS, about.failed or "the session took no samples")
    a_us, b_us = (median(times(result.blocks, v.name, result.clock or "device")) for v in laid.pair.variants)
    seconds = sum(result.seconds.get(phase, 0.0) for phase in TIMED)
    ours = {"method": OURS, "a_us": a_us, "b_us": b_us, "ratio": about.interval.ratio, "seconds": seconds}
    modules = [variant.module for variant in laid.pair.variants]
    asked = {"modules": modules, "seconds": seconds, "seed": bench.seed + repeat}
    return [ours, *bench.call(laid.pair.folder.root, "compare", **asked)]


def promises(timings: pandas.DataFrame, skipped: dict[str, str]) -> list[Promise]:
    """Ours has the smallest spread of the ratio on every pair, and the fewest false differences."""
    said = [_spread(str(pair), its) for pair, its in timings.groupby("pair", sort=False)]
    said.append(_differences(timings))
    said[-1].note = "; ".join(f"{what}: {why}" for what, why in skipped.items()) or None
    return said


def _spread(pair: str, timings: pandas.DataFrame) -> Promise:
    """Kept where no method spreads less; refuted where one clearly does; else undecided.

    The log ratio of two standard deviations, of n values each, has an error of sqrt(1/(n-1)).
    """
    logs = numpy.log(timings["ratio"]).groupby(timings["method"], sort=False)
    spreads, biases, n = logs.std(), logs.mean(), len(timings) // logs.ngroups
    ours, least = spreads[OURS], spreads.drop(OURS).min()
    return Promise(
        experiment="others",
        promise=f"{pair}: the smallest spread of the ratio at equal time",
        bound="no method spreads less",
        measured="; ".join(f"{name} {spreads[name]:.2%} (bias {biases[name]:+.2%})" for name in spreads.index),
        standing=standing(
            tried=n > 1,
            kept=ours <= least and n >= FEWEST_REPEATS,
            refuted=n >= FEWEST_REPEATS and least < ours * math.exp(-CLEARLY * math.sqrt(1 / (n - 1))),
        ),
    )


def _differences(timings: pandas.DataFrame) -> Promise:
    """Kept where no method has a smaller share of false differences; refuted where ours is clearly larger."""
    wrong = (timings["ratio"] - 1).abs().gt(DIFFERENT).groupby(timings["method"], sort=False).agg(["sum", "count"])
    tried, repeats = not timings.empty, timings.groupby(["pair", "method"]).size()
    ours, n = wrong.loc[OURS] if tried else (0, 0)
    best = (wrong["sum"] / wrong["count"]).drop(OURS, errors="ignore").min()
    return Promise(
        experiment="others",
        promise="fewest ratios of equal sides that are over 1% from 1",
        bound="no method has fewer",
        measured=", ".join(f"{method} {its['sum']} of {its['count']}" for method, its in wrong.iterrows()),
        standing=standing(
            tried=tried,
            kept=tried and ours / n <= best and repeats.min() >= FEWEST_REPEATS,
            refuted=tried and clopper_pearson(ours, n)[0] > best,
        ),
    )
