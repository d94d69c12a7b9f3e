"""torch's own grouped fp8 product, CUTLASS for Hopper; rows are cast by torch.compile of the formula."""

import torch
from torch import Tensor

from ch19.baseline_fp8_grouped_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])
LARGEST = torch.finfo(torch.float8_e4m3fn).max


def cast(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and for each row the least power of two with which it fits."""
    ratio = (x.abs().amax(-1).float() / LARGEST).clamp(min=2.0**-100)
    scale = ((ratio.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)
    return (x.float() / scale[..., None]).to(torch.float8_e4m3fn), scale


def prepare(x: Tensor, ends: Tensor, weights: Tensor) -> Step:
    compiled = torch.compile(cast, fullgraph=True, dynamic=False)
    each = [cast(weight) for weight in weights]
    codes, by_output = (torch.stack(parts) for parts in zip(*each))

    def step() -> Tensor:
        rows, by_row = compiled(x)
        return torch._scaled_grouped_mm(rows, codes.mT, by_row, by_output, offs=ends, out_dtype=x.dtype)

    return step
