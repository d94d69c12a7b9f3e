"""A streaming kernel whose blocks can all wait before they begin: a slowdown that is known because it was planted.

All blocks fit onto the GPU at once, so what each of them waits is what the kernel takes longer. But they do not begin
at once, and a first wait hides that: of 125 us it added 0.15 less than planted. So all variants wait, the baseline too,
and for long enough: where it waited 2.5 us, waits of 5 and 9 us still added 0.05 more than one of 65 tells.
"""

from functools import cache, partial

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload
from tools.selftest.methods import LEAST_S, event_loop

PROBE_CYCLES = 1_000_000
HEAD = 0.06  # of its own time the kernel waits in any case
requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a * 2,
    cost=lambda n: Cost(read=2 * 4 * n),
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 1031}},
    tolerance=0.0,  # twice a float is exact
)


def slowed(share: float, a: Tensor) -> Step:
    """The kernel with `share` of its own time planted before it, beyond what all wait."""
    kernel, out = load_cuda(__file__, "double_after"), torch.empty_like(a)
    cycles = round((HEAD + share) * own_cycles(a.numel()))

    def step() -> Tensor:
        kernel(a, out, a.numel(), cycles)
        return out

    return step


prepare = partial(slowed, 0.0)


@cache  # once in a process: the shares of two variants must be of the same thing, whatever the clocks do
def own_cycles(n: int) -> float:
    """SM clocks that the kernel takes by itself."""
    kernel, a = load_cuda(__file__, "double_after"), torch.zeros(n, device="cuda")
    out = torch.empty_like(a)
    alone, waiting = (event_loop(partial(kernel, a, out, n, cycles), LEAST_S) for cycles in (0, PROBE_CYCLES))
    return alone * PROBE_CYCLES / (waiting - alone)
