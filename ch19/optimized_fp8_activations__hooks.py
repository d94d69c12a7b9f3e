"""Hooks cast what autograd saves to fp8, with a scale for 128 numbers of a row, and widen it when the backward asks."""

from contextlib import AbstractContextManager

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ch19.baseline_fp8_activations import train_step
from ch19.baseline_fp8_activations import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=89)
LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448
SIDES = {"ROWS": 16, "BLOCK": 128, "num_warps": 4}
Packed = tuple[Tensor, Tensor | None]


@triton.jit
def narrow(x, codes, scales, rows, width, stride, LARGEST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, block = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside, row = (row < rows)[:, None] & (column < width)[None, :], row.to(tl.int64)
    tile = tl.load(x + row[:, None] * stride + column[None, :], inside, 0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(tile), 1) / LARGEST, 2.0**-100)  # the floor is for zeros
    tl.store(scales + block * rows + row, scale, row < rows)
    code = tl.clamp(tile / scale[:, None], -LARGEST, LARGEST).to(codes.dtype.element_ty)
    tl.store(codes + row[:, None] * width + column[None, :], code, inside)


@triton.jit
def widen(codes, scales, out, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, block = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside, at = (row < rows)[:, None] & (column < width)[None, :], row.to(tl.int64)[:, None] * width + column[None, :]
    scale = tl.load(scales + block * rows + row.to(tl.int64), row < rows, 0.0)
    tile = tl.load(codes + at, inside, 0.0).to(tl.float32) * scale[:, None]
    tl.store(out + at, tile.to(out.dtype.element_ty), inside)


def grid(rows: int, width: int) -> tuple[int, int]:
    return triton.cdiv(width, SIDES["BLOCK"]), triton.cdiv(rows, SIDES["ROWS"])


def prepare(x: Tensor, weights: list[Tensor], upstream: Tensor) -> Step:
    kept = {tensor.untyped_storage()._cdata for tensor in (x, *weights)}  # they stay in memory anyway

    def pack(saved: Tensor) -> Packed:
        if saved.untyped_storage()._cdata in kept:
            return saved, None
        rows, width = saved.shape  # half of the gates and values is a view, whose rows are apart
        codes = saved.new_empty(rows, width, dtype=torch.float8_e4m3fn)
        scales = saved.new_empty(triton.cdiv(width, SIDES["BLOCK"]), rows, dtype=torch.float32)
        narrow[grid(rows, width)](saved, codes, scales, rows, width, saved.stride(0), LARGEST, **SIDES)
        return codes, scales

    def unpack(packed: Packed) -> Tensor:
        codes, scales = packed
        if scales is None:
            return codes
        out = torch.empty_like(codes, dtype=x.dtype)
        widen[grid(*codes.shape)](codes, scales, out, *codes.shape, **SIDES)
        return out

    def saving() -> AbstractContextManager[object]:
        return saved_tensors_hooks(pack, unpack)

    return train_step(x, weights, upstream, saving=saving)
