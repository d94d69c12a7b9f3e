"""Each product of two numbers is an FMA of one lane: well tiled, but the multiprocessor's matrix unit stands idle."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, m, n, k: {
        "a": draw.normal(m, k, dtype=torch.bfloat16),
        "b": draw.normal(n, k, dtype=torch.bfloat16),  # as a linear layer keeps its weight: both run along k
    },
    reference=lambda a, b: a @ b.T,
    cost=lambda m, n, k: Cost(flops=2 * m * n * k, dtype="bf16", read=2 * (m * k + n * k), write=2 * m * n),
    # Copies of 16 bytes need k and n in eights; m is free.
    sizes={"bench": {"m": 4096, "n": 4096, "k": 4096}, "test": {"m": 197, "n": 328, "k": 104}},
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
    rungs="mma_sync",
)


def prepare(a: Tensor, b: Tensor) -> Step:
    gemm, out = load_cuda(__file__, "gemm"), a.new_empty(a.shape[0], b.shape[0])

    def step() -> Tensor:
        gemm(a, b, out, *out.shape, a.shape[1])
        return out

    return step
