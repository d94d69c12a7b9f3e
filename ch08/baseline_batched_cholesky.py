"""A block factors each matrix in shared memory: three barriers a column, and most threads have nothing left to do."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
SIDE = 32


def inputs(draw: Draw, count: int) -> Inputs:
    """Systems as alternating least squares has them: the Gram matrix of 64 items' factors, and 0.1 on the diagonal."""
    items = draw.normal(count, SIDE, 64, std=0.125)
    return {"a": (items @ items.mT).add_(torch.eye(SIDE, device=draw.device), alpha=0.1)}


def reference(a: Tensor) -> tuple[Tensor, Tensor]:
    """The lower factor with zeros above its diagonal, and 0 or the number of the first pivot that is not positive."""
    return torch.linalg.cholesky_ex(a)


# Of row i the first i + 1 numbers are the problem: 80 of a matrix's 128 sectors of 32 bytes. All of L is written.
workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda count: Cost(
        read=80 * 32 * count, write=(4 * SIDE**2 + 4) * count, flops=SIDE**3 // 3 * count, items=count, unit="matrices"
    ),
    # a matrix for each user of MovieLens 20M (Harper and Konstan, "The MovieLens Datasets", 2015)
    sizes={"bench": {"count": 138493}, "test": {"count": 77}},
    tolerance=3e-6,  # sums of 32 products in fp32; square roots and quotients by approximate reciprocals
)


def factoring(source: str, function: str, a: Tensor) -> Step:
    factor, out, info = load_cuda(source, function), torch.empty_like(a), a.new_empty(len(a), dtype=torch.int32)

    def step() -> tuple[Tensor, Tensor]:
        factor(a, out, info, len(a))
        return out, info

    return step


def prepare(a: Tensor) -> Step:
    return factoring(__file__, "factor", a)
