"""Each warp fetches fragments with ldmatrix and multiplies them with mma.sync, fed by a cp.async ring, as on Ampere."""

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
    # TMA copies rows that begin at multiples of 16 bytes: n and k are multiples of 8, but not of any tile's side.
    sizes={"bench": {"m": 8192, "n": 8192, "k": 8192}, "test": {"m": 397, "n": 328, "k": 584}},
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
    rungs="wgmma tma stages specialized wide_tile persistent multicast",
)


def prepare(a: Tensor, b: Tensor) -> Step:
    gemm, out = load_cuda(__file__, "gemm"), a.new_empty(a.shape[0], b.shape[0])

    def step() -> Tensor:
        gemm(a, b, out, *out.shape, a.shape[1])
        return out

    return step
