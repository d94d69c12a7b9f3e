"""Each thread stores the sums in its registers, two at a time: no store of a warp fills a 32-byte sector."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(targets=["sm_90a"])
workload = Workload(
    inputs=lambda draw, m, n, k: {
        "a": draw.normal(m, k, dtype=torch.bfloat16),
        "b": draw.normal(n, k, dtype=torch.bfloat16),
    },
    reference=lambda a, b: a @ b.T,
    cost=lambda m, n, k: Cost(flops=2 * m * n * k, dtype="bf16", read=2 * (m * k + n * k), write=2 * m * n),
    # With 64 products a result, storing takes twice as long as multiplying. TMA wants n and k in multiples of 8.
    sizes={"bench": {"m": 32768, "n": 16384, "k": 64}, "test": {"m": 397, "n": 584, "k": 72}},
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


def prepare(a: Tensor, b: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "multiply"), a.new_empty(a.shape[0], b.shape[0])

    def step() -> Tensor:
        multiply(a, b, out, *out.shape, a.shape[1])
        return out

    return step
