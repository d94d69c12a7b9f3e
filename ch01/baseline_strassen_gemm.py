"""An fp32 product by cuBLAS: n multiplications for each element of the answer, as the definition has it."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

LEVELS = 2  # of Strassen's recursion, of which each leaves 7/8 of the multiplications

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n, n), "b": draw.normal(n, n)},
    reference=lambda a, b: a @ b,
    # The fp32 units are the subject. No count of multiplications is the least: deeper recursions need fewer, and tensor
    # cores make 3xTF32. This is what the variants here need.
    cost=lambda n: Cost(flops=2 * n**3 * (7 / 8) ** LEVELS, dtype="fp32", read=8 * n * n, write=4 * n * n),
    sizes={"bench": {"n": 8192}, "test": {"n": 28}},
    # A chain of n fp32 sums is off by 1.8e-8 sqrt(n): 1.6e-6 here. A level of Strassen makes the error 1.8 times as
    # large (at n = 1024 and 2048, against float64), so two levels 3.2 times. TF32 would be off by 4e-4.
    tolerance=5e-6,
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.mm(a, b, out=out)

    return step
