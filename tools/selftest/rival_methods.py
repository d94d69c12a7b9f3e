"""What people time kernels with today: each times one closure for so many seconds and tells microseconds of a step."""

import time
from collections.abc import Callable
from statistics import median

import torch

from common.python.workload import Step

LEAST_S = 0.02  # that any of them is asked for
LOOP_WARM_UP = 3


def do_bench(step: Step, seconds: float) -> float:
    """Microseconds of one step by triton.testing.do_bench."""
    from triton.testing import do_bench as triton_do_bench  # needs a driver: not where only a CPU is timed

    return 1e3 * float(triton_do_bench(step, warmup=25, rep=max(1, round(1e3 * seconds)), return_mode="median"))


def autorange(step: Step, seconds: float) -> float:
    """Microseconds of one step by torch.utils.benchmark."""
    from torch.utils.benchmark import Timer

    return 1e6 * float(Timer("step()", globals={"step": step}).blocked_autorange(min_run_time=seconds).median)


def event_loop(step: Step, seconds: float) -> float:
    """Microseconds of one step by a pair of CUDA events and a synchronisation each iteration."""
    for _ in range(LOOP_WARM_UP):
        step()
    torch.cuda.synchronize()
    until, taken = time.perf_counter() + seconds, list[float]()
    while not taken or time.perf_counter() < until:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        stop.record()
        torch.cuda.synchronize()
        taken.append(1e3 * start.elapsed_time(stop))
    return median(taken)


def host_loop(step: Step, seconds: float) -> float:
    """Microseconds of one step by the host's clock, where there is no device to wait for."""
    for _ in range(LOOP_WARM_UP):
        step()
    until, taken = time.perf_counter() + seconds, list[float]()
    while not taken or time.perf_counter() < until:
        began = time.perf_counter()
        step()
        taken.append(1e6 * (time.perf_counter() - began))
    return median(taken)


Method = Callable[[Step, float], float]
ON_GPU: dict[str, Method] = {
    "triton do_bench": do_bench,
    "torch blocked_autorange": autorange,
    "event loop": event_loop,
}
ON_CPU: dict[str, Method] = {"torch blocked_autorange": autorange, "host loop": host_loop}


def rivals() -> dict[str, Method]:
    return ON_GPU if torch.cuda.is_available() else ON_CPU
