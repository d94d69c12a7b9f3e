"""Four blocks share a sum over k: each writes its part to memory in fp32, and a second kernel adds the parts."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(targets=["sm_90a"])
workload = Workload(
    inputs=lambda draw, m, n, k: {
        "x": draw.normal(m, k, dtype=torch.bfloat16),
        "weight": draw.normal(n, k, dtype=torch.bfloat16),
    },
    reference=lambda x, weight: x @ weight.T,
    cost=lambda m, n, k: Cost(read=2 * (m * k + n * k), write=2 * m * n, flops=2 * m * n * k, dtype="bf16"),
    # The down projection of Qwen2.5-72B for 64 tokens: 484 MB of weights. At most 64 rows of x, and TMA wants n and k
    # in multiples of 8.
    sizes={"bench": {"m": 64, "n": 8192, "k": 29568}, "test": {"m": 37, "n": 328, "k": 584}},
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)
SPLITS = 4  # as in the .cu file


def prepare(x: Tensor, weight: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "multiply"), x.new_empty(len(x), len(weight))
    parts = out.new_empty(SPLITS, *out.shape, dtype=torch.float32)

    def step() -> Tensor:
        multiply(x, weight, parts, out, *out.shape, x.shape[1])
        return out

    return step
