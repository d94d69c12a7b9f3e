"""What people time kernels with today, called in a worker: each times a step for some seconds and gives microseconds.

Raises RuntimeError where a variant cannot be prepared.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

import torch

from common.python.proof.preparation import Preparation
from common.python.workers.commands import Commands
from common.python.workload import Step

LEAST_S = 0.02  # that any method is asked for
LOOP_WARM_UP = 3
EMPTY_BLOCKS, EMPTY_SAMPLES = 8, 8


def do_bench(step: Step, seconds: float) -> float:
    """triton.testing.do_bench."""
    from triton.testing import do_bench as triton_do_bench  # needs a driver: not where only a CPU is timed

    return 1e3 * float(triton_do_bench(step, warmup=25, rep=max(1, round(1e3 * seconds)), return_mode="median"))


def autorange(step: Step, seconds: float) -> float:
    """torch.utils.benchmark."""
    from torch.utils.benchmark import Timer

    return 1e6 * float(Timer("step()", globals={"step": step}).blocked_autorange(min_run_time=seconds).median)


def event_loop(step: Callable[[], object], seconds: float) -> float:
    """A pair of CUDA events and a synchronisation each iteration."""

    def once() -> float:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        stop.record()
        torch.cuda.synchronize()
        return 1e3 * float(start.elapsed_time(stop))

    for _ in range(LOOP_WARM_UP):
        once()
    until, taken = time.perf_counter() + seconds, [once()]
    while time.perf_counter() < until:
        taken.append(once())
    return median(taken)


Method = Callable[[Step, float], float]


@cache  # each method imports what it needs at its first call, which is not to be timed
def methods() -> dict[str, Method]:
    found: dict[str, Method] = {"torch blocked_autorange": autorange}
    if torch.cuda.is_available():
        found |= {"triton do_bench": do_bench, "event loop": event_loop}
    for method in found.values():
        method(lambda: (), LEAST_S)
    return found


def compare(worker: Commands, modules: list[str], size: str, seconds: float, seed: int) -> list[dict[str, Any]]:
    """Time both modules of a pair by every method, in random order, each with `seconds` for preparing and timing.

    The first module is the baseline. A method's own warm-up comes on top of its time.
    """
    known, found = methods(), []
    for name in random.Random(seed).sample(list(known), len(known)):
        began = time.perf_counter()
        prep = _prepared(worker, modules, size)
        steps = [prep.variants[module].step for module in modules]
        left_s = max(LEAST_S, (seconds - (time.perf_counter() - began)) / len(steps))
        a_us, b_us = (known[name](step, left_s) for step in steps)
        spent = time.perf_counter() - began
        found.append({"method": name, "a_us": a_us, "b_us": b_us, "ratio": a_us / b_us, "seconds": spent})
    return found


def empty_step(worker: Commands, baseline: str, size: str) -> dict[str, Any]:
    """The floor that a session prints, and what an empty step reads when it is sampled in blocks as any other."""
    prep = _prepared(worker, [baseline], size)
    floor_us = worker.start_clock()
    variant = replace(prep.variants[baseline], name="empty", step=lambda: ())
    prep, sampler = replace(prep, variants={"empty": variant}), worker.sampler
    sampler.warm(prep, ["empty"], 1.0, passes=5)
    read = []
    for _ in range(EMPTY_BLOCKS):
        taken = sampler.block(prep, ["empty"] * EMPTY_SAMPLES, 1, [])
        read += [sample.device_us if sampler.on_device() else sample.wall_us for sample in taken["samples"]]
    return {"floor_us": floor_us, "empty_us": read}


def _prepared(worker: Commands, modules: list[str], size: str) -> Preparation:
    """The variants of these modules, the first of which is the baseline, prepared anew."""
    failures = worker.load(modules[0], {module: module for module in modules}, size)["failures"]
    failures |= worker.prepare(modules, size)["failures"] if not failures else {}
    if failures or worker.prep is None:
        raise RuntimeError("; ".join(failures.values()))
    return worker.prep
