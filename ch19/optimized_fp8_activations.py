"""An MLP is one function that keeps input, gates with values, and product in fp8, each for as long as it is needed."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch19.baseline_fp8_activations import train_step
from ch19.baseline_fp8_activations import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=89)
LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448
SIDES = {"ROWS": 16, "BLOCK": 128, "num_warps": 4}


@triton.jit
def narrow(x, codes, scales, rows, width, LARGEST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Codes of x, with a scale for 128 numbers of a row."""
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, at = (row < rows)[:, None] & (column < width)[None, :], row.to(tl.int64)[:, None] * width + column[None, :]
    tile = tl.load(x + at, inside, 0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(tile), 1) / LARGEST, 2.0**-100)  # the floor is for zeros
    tl.store(scales + tl.program_id(0) * rows + row, scale, row < rows)
    tl.store(codes + at, tl.clamp(tile / scale[:, None], -LARGEST, LARGEST).to(codes.dtype.element_ty), inside)


@triton.jit
def decoded(codes, scales, row, column, rows, width, inside, BLOCK: tl.constexpr):
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    scale = tl.load(scales + (column // BLOCK)[None, :] * rows + row[:, None], inside, 0.0)
    return tl.load(codes + at, inside, 0.0).to(tl.float32) * scale


@triton.jit
def widen(codes, scales, out, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, at = (row < rows)[:, None] & (column < width)[None, :], row.to(tl.int64)[:, None] * width + column[None, :]
    tile = decoded(codes, scales, row, column, rows, width, inside, BLOCK)
    tl.store(out + at, tile.to(out.dtype.element_ty), inside)


@triton.jit
def slopes(codes, scales, upstream, out, rows, wide, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """From the slope of silu(gate) * up those of both, side by side as their codes are."""
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, at = (row < rows)[:, None] & (column < wide)[None, :], row.to(tl.int64)[:, None] * wide + column[None, :]
    gate = decoded(codes, scales, row, column, rows, 2 * wide, inside, BLOCK)
    up = decoded(codes, scales, row, wide + column, rows, 2 * wide, inside, BLOCK)
    slope, share = tl.load(upstream + at, inside, 0.0).to(tl.float32), tl.sigmoid(gate)
    out += row.to(tl.int64)[:, None] * (2 * wide) + column[None, :]
    tl.store(out, (slope * up * share * (1 + gate * (1 - share))).to(out.dtype.element_ty), inside)
    tl.store(out + wide, (slope * gate * share).to(out.dtype.element_ty), inside)


def grid(rows: int, width: int) -> tuple[int, int]:
    return triton.cdiv(width, SIDES["BLOCK"]), triton.cdiv(rows, SIDES["ROWS"])


def narrowed(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = x.shape
    codes = x.new_empty(rows, width, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(triton.cdiv(width, SIDES["BLOCK"]), rows, dtype=torch.float32)
    narrow[grid(rows, width)](x, codes, scales, rows, width, LARGEST, **SIDES)
    return codes, scales


def widened(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    out = torch.empty_like(codes, dtype=dtype)
    widen[grid(*codes.shape)](codes, scales, out, *codes.shape, **SIDES)
    return out


class Mlp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        both = F.linear(x, gate_up)
        gate, up = both.chunk(2, dim=-1)
        product = F.silu(gate).mul_(up)
        ctx.kept = [x if x.is_leaf else narrowed(x), narrowed(both)]  # a leaf is in memory anyway
        del both, gate, up  # 268 MB, before the output needs room
        ctx.kept.append(narrowed(product))
        ctx.save_for_backward(gate_up, down)
        return torch.addmm(x, product, down.T)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:
        gate_up, down = ctx.saved_tensors
        to_down = slope.T @ widened(*ctx.kept.pop(), slope.dtype)  # what is popped is free once it has been used
        to_product, both = slope @ down, ctx.kept.pop()
        to_both = slope.new_empty(both[0].shape)
        slopes[grid(*to_product.shape)](*both, to_product, to_both, *to_product.shape, **SIDES)
        del to_product, both
        x = ctx.kept.pop()
        x = widened(*x, slope.dtype) if isinstance(x, tuple) else x
        return torch.addmm(slope, to_both, gate_up), to_both.T @ x, to_down


def prepare(x: Tensor, weights: list[Tensor], upstream: Tensor) -> Step:
    return train_step(x, weights, upstream, Mlp.apply)
