"""Activations are cast in blocks of 128, and after 128 products of codes their sums are scaled and added in fp32."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch14.baseline_blockwise_fp8_gemm import BLOCK
from ch14.baseline_blockwise_fp8_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=89)
LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448


@triton.jit
def cast(x, codes, scales, tokens, features, LARGEST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A block of 128 features in fp8, and the least power of two with which it fits; scales lie token by token."""
    row, block = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0)
    at = row.to(tl.int64)[:, None] * features + block * BLOCK + tl.arange(0, BLOCK)[None, :]
    tile = tl.load(x + at, (row < tokens)[:, None], 0.0).to(tl.float32)
    least = tl.maximum(tl.math.div_rn(tl.max(tl.abs(tile), 1), LARGEST), 2.0**-100)  # the floor is for zeros
    scale = ((least.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)
    tl.store(scales + block * tokens + row, scale, row < tokens)
    tl.store(codes + at, (tile / scale[:, None]).to(codes.dtype.element_ty), (row < tokens)[:, None])


@triton.jit
def product(
    a, b, out, a_scales, b_scales, m, n, k, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr
):
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
    row, blocks = i * M + tl.arange(0, M), k // BLOCK
    by_block = b_scales + j * N // BLOCK * blocks  # N outputs have one scale
    total = tl.zeros((M, N), tl.float32)
    for block in range(blocks):
        x, y = a.load([i * M, block * BLOCK]), b.load([j * N, block * BLOCK])  # beyond the edges there are zeros
        scale = tl.load(a_scales + block * m + row, row < m, 0.0) * tl.load(by_block + block)
        total += tl.dot(x, y.T) * scale[:, None]
    out.store([i * M, j * N], total.to(out.dtype))


def prepare(x: Tensor, codes: Tensor, by_block: Tensor) -> Step:
    (m, k), n = x.shape, len(codes)
    # without wgmma or tcgen05 operands take registers, and 128 x 128 spills
    wide = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    side, rows = 128 if wide else 64, 16
    out, x_codes = x.new_empty(m, n), torch.empty_like(x, dtype=codes.dtype)
    x_scales = by_block.new_empty(k // BLOCK, m)
    from_x, from_weight = (TensorDescriptor.from_tensor(each, [side, BLOCK]) for each in (x_codes, codes))
    into = TensorDescriptor.from_tensor(out, [side, side])
    grid, cast_grid = (triton.cdiv(n, side), triton.cdiv(m, side)), (k // BLOCK, triton.cdiv(m, rows))
    options = {"GROUP": 8, "num_warps": side // 16, "num_stages": 3}

    def step() -> Tensor:
        cast[cast_grid](x, x_codes, x_scales, m, k, LARGEST, rows, BLOCK, num_warps=4)
        product[grid](from_x, from_weight, into, x_scales, by_block, m, n, k, side, side, BLOCK, **options)
        return out

    return step
