"""Rows sorted by adapter: a program belongs to an adapter, not to a row, and reads its matrices once for all."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_multi_lora import workload as workload
from common.python.workload import Step

SHRINK = {"M": 16, "N": 32, "K": 128, "num_warps": 4, "num_stages": 4}
EXPAND = {"M": 16, "N": 256, "num_warps": 4}


@triton.jit
def sort_rows(ids, order, ends, rows, ROWS: tl.constexpr):
    """A program for each adapter: its rows to their places, behind those of lower adapters, and the end of them."""
    adapter, row = tl.program_id(0), tl.arange(0, ROWS)
    wanted = tl.load(ids + row, mask=row < rows, other=1 << 30)
    own, start = (wanted == adapter).to(tl.int32), tl.sum((wanted < adapter).to(tl.int32), 0)
    tl.store(order + start + tl.cumsum(own, 0) - 1, row, mask=own > 0)
    tl.store(ends + adapter + 1, start + tl.sum(own, 0))


@triton.jit
def shrink(
    x, a, order, ends, hidden, rows, width, narrow,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    adapter, projection = tl.program_id(1), tl.program_id(2).to(tl.int64)
    a += (projection * tl.num_programs(1) + adapter) * narrow * width
    column = tl.program_id(0) * N + tl.arange(0, N)
    end = tl.load(ends + adapter + 1)
    for first in range(tl.load(ends + adapter), end, M):
        row = tl.load(order + first + tl.arange(0, M), mask=first + tl.arange(0, M) < end, other=rows)
        left, total = x + (projection * rows + row[:, None]) * width, tl.zeros((M, N), tl.float32)
        for start in range(0, width, K):
            at = start + tl.arange(0, K)
            values = tl.load(left + at[None, :], mask=(row < rows)[:, None] & (at < width)[None, :], other=0.0)
            there = (column < narrow)[None, :] & (at < width)[:, None]
            weights = tl.load(a + column[None, :] * width + at[:, None], mask=there, other=0.0)
            total = tl.dot(values, weights, total)
        place = hidden + (projection * rows + row[:, None]) * narrow + column[None, :]
        inside = (row < rows)[:, None] & (column < narrow)[None, :]
        tl.store(place, total.to(hidden.dtype.element_ty), mask=inside)


@triton.jit
def expand(
    hidden, b, order, ends, base, out, rows, width, narrow,
    M: tl.constexpr, N: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    adapter, projection = tl.program_id(1), tl.program_id(2).to(tl.int64)
    b += (projection * tl.num_programs(1) + adapter) * narrow * width
    column, at = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, R)
    there = (column < width)[None, :] & (at < narrow)[:, None]
    weights = tl.load(b + column[None, :] * narrow + at[:, None], mask=there, other=0.0)
    end = tl.load(ends + adapter + 1)
    for first in range(tl.load(ends + adapter), end, M):
        row = tl.load(order + first + tl.arange(0, M), mask=first + tl.arange(0, M) < end, other=rows)
        left = hidden + (projection * rows + row[:, None]) * narrow + at[None, :]
        values = tl.load(left, mask=(row < rows)[:, None] & (at < narrow)[None, :], other=0.0)
        place = (projection * rows + row[:, None]) * width + column[None, :]
        inside = (row < rows)[:, None] & (column < width)[None, :]
        total = tl.dot(values, weights) + tl.load(base + place, mask=inside, other=0.0)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)


def prepare(x: Tensor, base: Tensor, ids: Tensor, a: Tensor, b: Tensor) -> Step:
    (projections, rows, width), (adapters, narrow) = x.shape, a.shape[1:3]
    out, hidden = torch.empty_like(base), x.new_empty(projections, rows, narrow)
    order, ends = (ids.new_zeros(n, dtype=torch.int32) for n in (rows, adapters + 1))
    block, deep = (triton.next_power_of_2(max(n, 16)) for n in (rows, narrow))

    def step() -> Tensor:
        sort_rows[(adapters,)](ids, order, ends, rows, block, num_warps=1)
        grid = (triton.cdiv(narrow, SHRINK["N"]), adapters, projections)
        shrink[grid](x, a, order, ends, hidden, rows, width, narrow, **SHRINK)
        grid = (triton.cdiv(width, EXPAND["N"]), adapters, projections)
        expand[grid](hidden, b, order, ends, base, out, rows, width, narrow, **EXPAND, R=deep)
        return out

    return step
