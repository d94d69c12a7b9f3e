"""Rows of 4097 bf16, of which only each eighth begins at a 16-byte boundary, are scaled element by element."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, rows, columns: {
        "x": draw.normal(rows, columns, dtype=torch.bfloat16),
        "scales": draw.uniform(rows, low=0.5, high=2.0),
    },
    reference=lambda x, scales: x * scales[:, None],
    cost=lambda rows, columns: Cost(read=2 * rows * columns + 4 * rows, write=2 * rows * columns),
    sizes={"bench": {"rows": 65536, "columns": 4097}, "test": {"rows": 19, "columns": 1051}},
    tolerance=4e-3,  # rounding to bf16 is off by 1.7e-3
)


def prepare(x: Tensor, scales: Tensor) -> Step:
    scale, out = load_cuda(__file__, "scale_rows"), torch.empty_like(x)

    def step() -> Tensor:
        scale(x, scales, out, *x.shape)
        return out

    return step
