"""A program reads its blocks once: maximum, exponent by its bits, scaling and cast are all made in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch19.baseline_mxfp8_quantize import BLOCK, LARGEST, TOP
from ch19.baseline_mxfp8_quantize import workload as workload
from common.models.formats import BIAS, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89)
BLOCKS = 64  # of a program: 2,048 numbers, sixteen for each of 128 threads


@triton.jit
def mx_cast(
    x,
    codes,
    exponents,
    blocks,
    LARGEST: tl.constexpr,
    TOP: tl.constexpr,
    BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    at, inside = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], (block < blocks)[:, None]
    numbers = tl.load(x + at, inside, 0.0).to(tl.float32)
    # of a positive fp32 number, the bits above 23 are the floor of its logarithm, plus 127
    amax = tl.max(tl.abs(numbers), 1)
    biased = tl.maximum((amax.to(tl.int32, bitcast=True) >> 23) - TOP, 0)
    # 2 ** -(biased - BIAS); its exponent is 254 - biased, at least 7, and at most that of 2 ** 127
    inverse = ((2 * BIAS - biased) << 23).to(tl.float32, bitcast=True)
    scaled = tl.clamp(numbers * inverse[:, None], -LARGEST, LARGEST)
    tl.store(codes + at, scaled.to(codes.dtype.element_ty), inside)
    tl.store(exponents + block, biased.to(tl.uint8), block < blocks)


def prepare(x: Tensor) -> Metered:
    blocks = x.numel() // BLOCK
    codes = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
    exponents = x.new_empty(len(x), blocks // len(x), dtype=torch.uint8)
    grid = (triton.cdiv(blocks, BLOCKS),)

    def step() -> tuple[Tensor, Tensor]:
        mx_cast[grid](x, codes, exponents, blocks, LARGEST, TOP, BIAS, BLOCK, BLOCKS, num_warps=4)
        return codes.view(torch.uint8), exponents

    return metered(step, "e4m3", BLOCK)
