"""A million products of 16 x 16 matrices by torch.bmm: cuBLAS gives each a block with a tile larger than they are."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

SIDE = 16
workload = Workload(
    inputs=lambda draw, count, dtype: {
        name: draw.normal(count, SIDE, SIDE, dtype=getattr(torch, dtype)) for name in ("a", "b")
    },
    reference=lambda a, b: a @ b,
    cost=lambda count, dtype: Cost(
        flops=2 * count * SIDE**3, dtype="bf16", read=4 * count * SIDE**2, write=2 * count * SIDE**2
    ),
    sizes={
        "bench": {"count": 1 << 20, "dtype": "bfloat16"},  # 1.6 GB
        "test": {"count": 37, "dtype": "float16"},  # float16 because Triton's interpreter has no bf16 dot
    },
    tolerance=4e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.bmm(a, b, out=out)

    return step
