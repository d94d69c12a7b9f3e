"""After each short kernel the host sleeps until an interrupt: no core burns while it waits, but waking up is slow."""

import os
import resource
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from common.python.workload import Cost, Metered, Workload

LEAST, MOST, HALVINGS = -8.0, 8.0, 20  # the middle of each interval is exact in fp32


def reference(x: Tensor, ranks: Tensor) -> Tensor:
    """For each rank, the upper end of the last interval: the least multiple of 2**-16 with so many values up to it."""
    ends = torch.arange(1, 2**HALVINGS + 1, device=x.device, dtype=x.dtype) * 2.0**-16 + LEAST
    counts = torch.searchsorted(x.sort().values, ends, right=True)
    return ends[torch.searchsorted(counts, ranks.to(x.device))]


workload = Workload(
    inputs=lambda draw, n, quantiles: {
        "x": draw.normal(n),
        "ranks": draw.host.integers(quantiles, low=n // 8, high=n - n // 8),
    },
    reference=reference,
    cost=lambda n, quantiles: Cost(read=4 * n, pcie_bytes=4 * quantiles),
    sizes={"bench": {"n": 1 << 16, "quantiles": 10}, "test": {"n": 1009, "quantiles": 3}},
    tolerance=0.0,  # counts are integers, and no interval depends on rounding
    clock="end_to_end",
)


def searched(x: Tensor, ranks: Tensor, receive: Callable[[Tensor], int]) -> Metered:
    """Bisection by the host, for each rank: the GPU counts, and the host must `receive` the count to go on."""

    def step() -> Tensor:
        found = []
        for rank in ranks.tolist():
            low, high = LEAST, MOST
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                low, high = (low, middle) if receive((x <= middle).sum()) >= rank else (middle, high)
            found.append(high)
        return torch.tensor(found).to(x.device)

    def metrics() -> dict[str, float]:
        before = resource.getrusage(resource.RUSAGE_SELF)
        began = os.times().elapsed
        for _ in range(10):
            step()
        after, elapsed = resource.getrusage(resource.RUSAGE_SELF), os.times().elapsed - began
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"CPU ms": 100 * used, "cores busy": used / elapsed if elapsed else 1.0}

    return Metered(step, metrics)


def behind_event(x: Tensor, event: Any, wait: Callable[[Any], None]) -> Callable[[Tensor], int]:
    """A count goes to page-locked memory, and the host waits for an event behind the copy."""
    landing = torch.empty((), dtype=torch.int64, pin_memory=x.is_cuda)

    def receive(count: Tensor) -> int:
        landing.copy_(count, non_blocking=True)
        event.record()
        wait(event)
        return int(landing)

    return receive


def prepare(x: Tensor, ranks: Tensor) -> Metered:
    event = torch.cuda.Event(blocking=True) if x.is_cuda else torch.cpu.Event()
    return searched(x, ranks, behind_event(x, event, lambda event: event.synchronize()))
