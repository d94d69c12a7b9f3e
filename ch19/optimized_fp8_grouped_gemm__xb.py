"""Experiment: the product in CUDA, with wgmma."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch19.baseline_fp8_grouped_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])
LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448


@triton.jit
def cast_row(x, codes, scales, width, LARGEST: tl.constexpr, WIDTH: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    numbers = tl.load(x + row * width + column, column < width, 0.0).to(tl.float32)
    least = tl.maximum(tl.math.div_rn(tl.max(tl.abs(numbers), 0), LARGEST), 2.0**-100)  # the floor is for zeros
    # up to a power of two, so that scaling is exact
    scale = ((least.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)
    tl.store(scales + row, scale)
    tl.store(codes + row * width + column, (numbers / scale).to(codes.dtype.element_ty), column < width)


def cast_to(x: Tensor) -> tuple[Tensor, Tensor]:
    """Room for x [rows, width] in fp8, and for a scale for each row."""
    return torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(len(x), dtype=torch.float32)


def prepare(x: Tensor, ends: Tensor, weights: Tensor) -> Step:
    (tokens, width), (experts, outputs, _), grouped = x.shape, weights.shape, load_cuda(__file__, "grouped")
    flat, wide = weights.view(-1, width), triton.next_power_of_2(width)
    (rows, by_row), (codes, by_output), out = cast_to(x), cast_to(flat), x.new_empty(tokens, outputs)
    cast_row[(len(flat),)](flat, codes, by_output, width, LARGEST, wide, num_warps=8)

    def step() -> Tensor:
        cast_row[(tokens,)](x, rows, by_row, width, LARGEST, wide, num_warps=8)
        grouped(rows, codes, out, by_row, by_output, ends, tokens, experts, outputs, width)
        return out

    return step
