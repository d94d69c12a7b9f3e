"""A Walsh-Hadamard transform of 4,096 columns as twelve passes of butterflies, each of which walks through memory."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

COLUMNS = 4096


def inputs(draw: Draw, rows: int, dtype: str) -> Inputs:
    return {"x": draw.normal(rows, COLUMNS, dtype=getattr(torch, dtype))}


def transform(x: Tensor) -> Tensor:
    width = 1
    while width < COLUMNS:
        a, b = x.view(-1, COLUMNS // (2 * width), 2, width).unbind(2)
        x, width = torch.stack((a + b, a - b), dim=2).mul_(0.5**0.5), 2 * width
    return x.view(-1, COLUMNS)


workload = Workload(
    inputs=inputs,
    reference=transform,
    cost=lambda rows, dtype: Cost(read=2 * COLUMNS * rows, write=2 * COLUMNS * rows),
    sizes={
        "bench": {"rows": 65536, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"rows": 7, "dtype": "float16"},
    },
    tolerance=1e-2,  # twelve passes, each rounded to bf16 by 0.17% twice
)


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return transform(x)

    return step
