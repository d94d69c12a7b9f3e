"""The product of two square matrices in float32."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n, n), "b": draw.normal(n, n)},
    reference=lambda a, b: a @ b,
    cost=lambda n: Cost(read=3 * 4 * n * n, flops=2 * n**3),
    sizes={"bench": {"n": 2048}, "cpu": {"n": 256}, "test": {"n": 33}},
    tolerance=1e-5,
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.matmul(a, b, out=out)

    return step
