"""Three kernels scan tiles, their sums, and then add these: every number is read twice and written twice."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
TILE = 8192  # numbers of a block, as in the .cu file
workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a.cumsum(0),
    cost=lambda n: Cost(read=4 * n, write=4 * n),
    sizes={"bench": {"n": 1 << 28}, "test": {"n": 300007}},  # 37 tiles, of which the last is not full
    tolerance=3e-5,  # sums pass through 32,768 tiles in fp32, one after the other; simulated, that is off by 4e-6
    rungs="sums_first look_back",
)


def prepare(a: Tensor) -> Step:
    scan, out = load_cuda(__file__, "scan"), torch.empty_like(a)
    totals = a.new_empty(-(-a.numel() // TILE))

    def step() -> Tensor:
        scan(a, totals, totals.numel(), out, a.numel())
        return out

    return step
