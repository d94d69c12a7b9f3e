"""Matrices in fp8 are widened to bf16 for cuBLAS' product: twice the bytes, at half of the tensor cores' rate."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, m, n, k: {
        "a": draw.normal(m, k).to(torch.float8_e4m3fn),
        "b": draw.normal(n, k).to(torch.float8_e4m3fn),  # as a linear layer keeps its weight: both run along k
    },
    reference=lambda a, b: a @ b.T,
    cost=lambda m, n, k: Cost(flops=2 * m * n * k, dtype="fp8", read=m * k + n * k, write=2 * m * n),
    # TMA copies rows that begin at multiples of 16 bytes, so k is a multiple of 16; m and n are for torch._scaled_mm.
    sizes={"bench": {"m": 8192, "n": 8192, "k": 8192}, "test": {"m": 400, "n": 336, "k": 592}},
    # Rounding to bf16 is off by 1.7e-3. Hopper's fp8 sums have 14 bits, which costs as much again and more for long k.
    tolerance=1.5e-2,
    frozen=("b",),
)


def prepare(a: Tensor, b: Tensor) -> Step:
    wide_a, wide_b = torch.empty_like(a, dtype=torch.bfloat16), b.to(torch.bfloat16)
    out = wide_a.new_empty(len(a), len(b))

    def step() -> Tensor:
        return torch.mm(wide_a.copy_(a), wide_b.T, out=out)

    return step
