"""One kernel for systems of any size: its matrix is an array with run-time indices, so it lies in local memory."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, n: int, batch: int) -> Inputs:
    """Newton matrices of many small integrators, near the identity, so that no pivot is needed; one system a column."""
    a = draw.normal(n, n, batch, std=0.05)
    a.diagonal(dim1=0, dim2=1).add_(1)
    return {"a": a, "b": draw.normal(n, batch)}


workload = Workload(
    inputs=inputs,
    reference=lambda a, b: torch.linalg.solve(a.permute(2, 0, 1), b.T).T,
    cost=lambda n, batch: Cost(read=4 * (n + 1) * n * batch, write=4 * n * batch),
    sizes={"bench": {"n": 8, "batch": 4_000_000}, "test": {"n": 5, "batch": 1001}},
    tolerance=2e-6,  # fp32
)


def prepare(a: Tensor, b: Tensor) -> Step:
    solve, x = load_cuda(__file__, "solve"), torch.empty_like(b)

    def step() -> Tensor:
        solve(a, b, x, *b.shape)
        return x

    return step
