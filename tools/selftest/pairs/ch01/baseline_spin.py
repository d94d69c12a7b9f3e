"""One block waits for a known time by the GPU's own nanosecond timer, then copies: the answer to hold a clock against.

Its kernel counts nanoseconds and not SM clocks, since those last longer when the card is hot. The timer ticks every
microsecond or more often, so that a wait of a millisecond is known to 0.1%.
"""

import time
from functools import partial

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

SPIN_US = 1000
requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a,
    cost=lambda n: Cost(read=2 * 4 * n, launches=1),
    sizes={"bench": {"n": 256}, "test": {"n": 67}},
    tolerance=0.0,  # a copy is exact
)


def slowed(host_us: float, a: Tensor) -> Step:
    """The same kernel, launched after the host has been busy for so long."""
    spin, out = load_cuda(__file__, "spin_then_copy"), a.new_empty(a.shape)

    def step() -> Tensor:
        until = time.perf_counter_ns() + 1000 * host_us
        while time.perf_counter_ns() < until:
            pass
        spin(a, out, a.numel(), 1000 * SPIN_US)
        return out

    return step


prepare = partial(slowed, 0)
