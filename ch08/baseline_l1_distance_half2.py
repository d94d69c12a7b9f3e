"""Both vectors are fp16, but their numbers become fp32 first, so each term takes two instructions of one lane each."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, m: int, n: int, width: int) -> Inputs:
    return {name: draw.normal(count, width, dtype=torch.float16) for name, count in (("x", m), ("y", n))}


def cost(m: int, n: int, width: int) -> Cost:
    """One packed instruction makes two terms, max(a - b, 0), as fp32 does one multiply-add; tensor cores add."""
    return Cost(read=2 * (m + n) * width, write=4 * m * n, flops=m * n * width, dtype="fp32", items=m * n, unit="pairs")


workload = Workload(
    inputs=inputs,
    reference=lambda x, y: torch.cdist(x, y, p=1),
    cost=cost,
    sizes={"bench": {"m": 4096, "n": 4096, "width": 128}, "test": {"m": 133, "n": 67, "width": 70}},
    tolerance=1e-3,  # differences are rounded to fp16
)


def prepare(x: Tensor, y: Tensor) -> Step:
    distances, out = load_cuda(__file__, "l1"), x.new_empty(len(x), len(y), dtype=torch.float32)

    def step() -> Tensor:
        distances(x, y, out, len(x), *y.shape)
        return out

    return step
