"""A host's own work, after which the host can be made to wait: a slowdown that is known because it was planted."""

import time
from functools import cache, partial

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload
from tools.selftest.methods import LEAST_S, autorange

WAIT_NS = 2_000  # many looks at the clock
workload = Workload(
    inputs=lambda draw, n: {"a": draw.host.normal(n)},
    reference=lambda a: a.sigmoid(),
    cost=lambda n: Cost(host_bytes=2 * 4 * n),
    # so few that torch does them with one thread (of cosines 2,048): others would have to wake for each step
    sizes={"bench": {"n": 1 << 14}, "cpu": {"n": 1 << 14}, "test": {"n": 67}},
    tolerance=1e-6,
    clock="end_to_end",
)


def slowed(share: float, a: Tensor) -> Step:
    """The same work with `share` of its own time planted after it, and behind a wait that all variants have.

    A wait looks at the clock once more than none does: where the baseline had none, slowdowns were 0.2 to 0.4% of the
    step smaller than planted.
    """
    out, ns = torch.empty_like(a), WAIT_NS + (round(share * own_ns(a.numel())) if share else 0)

    def step() -> Tensor:
        torch.sigmoid(a, out=out)
        until = time.perf_counter_ns() + ns
        while time.perf_counter_ns() < until:
            pass
        return out

    return step


prepare = partial(slowed, 0.0)


@cache  # once in a process: the shares of two variants must be of the same thing, however fast the host is just now
def own_ns(n: int) -> float:
    """Nanoseconds that the work takes by itself."""
    a = torch.zeros(n)
    return 1e3 * autorange(partial(torch.sigmoid, a, out=torch.empty_like(a)), LEAST_S)
