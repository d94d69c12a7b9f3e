"""Every thread loads one code and waits: the multiprocessor is full of warps and yet has only 2 KiB on their way."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, rows, columns: {
        "codes": draw.integers(rows, columns, low=-128, high=128, dtype=torch.int8),
        "scales": draw.uniform(rows, low=0.005, high=0.015),
    },
    reference=lambda codes, scales: codes * scales[:, None],
    cost=lambda rows, columns: Cost(read=rows * columns + 4 * rows, write=2 * rows * columns, flops=rows * columns),
    sizes={"bench": {"rows": 32768, "columns": 8192}, "test": {"rows": 13, "columns": 9001}},
    tolerance=4e-3,  # rounding to bf16 is off by 1.6e-3
)


def prepare(codes: Tensor, scales: Tensor) -> Step:
    dequantize, out = load_cuda(__file__, "dequantize_rows"), torch.empty_like(codes, dtype=torch.bfloat16)

    def step() -> Tensor:
        dequantize(codes, scales, out, *codes.shape)
        return out

    return step
