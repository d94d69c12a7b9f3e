"""A block factors each matrix in shared memory: three barriers a column, and most threads have nothing left to do."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
SIDE = 32


def without_factor(count: int) -> int:
    """How many of the matrices are not positive definite."""
    return 1 + count // 100


def inputs(draw: Draw, count: int) -> Inputs:
    """Systems as alternating least squares has them: the Gram matrix of 64 items' factors, and 0.1 on the diagonal.

    A few have a random pivot of -0.1, which rounding cannot turn positive; most still have a positive diagonal.
    """
    items = draw.normal(count, SIDE, 64, std=0.125)
    a = (items @ items.mT).add_(torch.eye(SIDE, device=draw.device), alpha=0.1)
    bad = draw.permutation(count)[: without_factor(count)]
    place = draw.integers(len(bad), high=SIDE)
    roots = torch.linalg.cholesky_ex(a[bad])[0].diagonal(dim1=1, dim2=2).gather(1, place[:, None])[:, 0]
    a[bad, place, place] -= roots.square() + 0.1
    return {"a": a}


def reference(a: Tensor) -> tuple[Tensor, Tensor]:
    """The lower factor and 0; if there is none, zeros and the number of the first pivot that is not positive."""
    factor, info = torch.linalg.cholesky_ex(a)
    return factor.masked_fill(info[:, None, None] != 0, 0.0), info


def cost(count: int) -> Cost:
    """Of row i the first i + 1 numbers are the problem: 80 of a matrix's 128 sectors of 32 bytes. All of L is written.

    Reading a matrix may end where its factor does, so of those without one nothing counts but the zeros.
    """
    whole = count - without_factor(count)
    return Cost(
        read=80 * 32 * whole,
        write=(4 * SIDE**2 + 4) * count,
        flops=SIDE**3 // 3 * whole,
        items=count,
        unit="matrices",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
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
