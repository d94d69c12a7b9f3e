"""A product in fp32, PyTorch's default: it runs on the GPU's fp32 units, and the tensor cores stand idle."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n, n), "b": draw.normal(n, n)},
    reference=lambda a, b: a @ b,
    cost=lambda n: Cost(read=2 * 4 * n * n, write=4 * n * n, flops=2 * n**3, dtype="bf16"),  # as the tolerance allows
    sizes={"bench": {"n": 8192}, "test": {"n": 67}},
    tolerance=5e-3,  # operands rounded to bf16 leave a product off by 2.4e-3; FP8 would be off by ten times as much
    isolated=True,  # TF32 is a setting of the whole process
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.mm(a, b, out=out)

    return step
