"""A kernel ends between the sums of squares and the scaling, so every vector comes from memory twice."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, vectors: int, n: int) -> Inputs:
    """Vectors of different lengths, each too long for one multiprocessor."""
    return {"x": draw.normal(vectors, n).mul_(draw.uniform(vectors, 1, low=0.5, high=2.0))}


workload = Workload(
    inputs=inputs,
    reference=lambda x: normalize(x),
    cost=lambda vectors, n: Cost(read=4 * vectors * n, write=4 * vectors * n, flops=3 * vectors * n),
    sizes={"bench": {"vectors": 16, "n": 1 << 22}, "test": {"vectors": 3, "n": 10007}},
    tolerance=1e-5,  # fp32 sums in any order are off by 1e-6
)


def prepare(x: Tensor) -> Step:
    divide, out, sums = load_cuda(__file__, "normalize"), torch.empty_like(x), x.new_empty(len(x))

    def step() -> Tensor:
        divide(x, out, sums, *x.shape)
        return out

    return step
