"""A product of two float32 matrices that takes milliseconds, long against all that surrounds a launch."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n, n), "b": draw.normal(n, n)},
    reference=lambda a, b: a @ b,
    cost=lambda n: Cost(flops=2 * n**3, dtype="fp32", read=3 * 4 * n * n),
    sizes={"bench": {"n": 4096}, "cpu": {"n": 384}, "test": {"n": 41}},
    tolerance=1e-5,
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.matmul(a, b, out=out)

    return step
