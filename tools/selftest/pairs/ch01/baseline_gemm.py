"""A product of two bf16 matrices so large that the power cap, not the arithmetic, sets the clock."""

from functools import partial

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {
        "a": draw.normal(n, n, dtype=torch.bfloat16),
        "b": draw.normal(n, n, dtype=torch.bfloat16),
    },
    reference=lambda a, b: a @ b,
    cost=lambda n: Cost(flops=2 * n**3, dtype="bf16", read=3 * 2 * n * n),
    sizes={"bench": {"n": 8192}, "cpu": {"n": 192}, "test": {"n": 37}},
    tolerance=4e-3,  # the answer is rounded to bf16, which is off by up to 2^-9 of each element
)


def prepare(a: Tensor, b: Tensor) -> Step:
    return partial(torch.matmul, a, b, out=torch.empty_like(a))
