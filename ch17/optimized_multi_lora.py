"""Rows sorted by adapter: a program goes through both matrices of an adapter, once for all of its rows."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_multi_lora import workload as workload
from common.python.workload import Step

TILE = {"M": 16, "N": 256, "K": 128, "num_warps": 4, "num_stages": 3}


@triton.jit
def sort_rows(ids, order, ends, rows, ROWS: tl.constexpr):
    """A program for each adapter: its rows to their places, behind those of lower adapters, and the end of them."""
    adapter, row = tl.program_id(0), tl.arange(0, ROWS)
    wanted = tl.load(ids + row, mask=row < rows, other=1 << 30)
    own, start = (wanted == adapter).to(tl.int32), tl.sum((wanted < adapter).to(tl.int32), 0)
    tl.store(order + start + tl.cumsum(own, 0) - 1, row, mask=own > 0)
    tl.store(ends + adapter + 1, start + tl.sum(own, 0))


@triton.jit
def adapt(
    x, a, b, order, ends, base, out, rows, width, narrow,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    adapter, projection, rank = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, R)
    own = (projection * tl.num_programs(0) + adapter) * narrow * width
    end = tl.load(ends + adapter + 1)
    for first in range(tl.load(ends + adapter), end, M):
        row = tl.load(order + first + tl.arange(0, M), mask=first + tl.arange(0, M) < end, other=rows)
        place, live = (projection * rows + row[:, None]) * width, (row < rows)[:, None]
        total = tl.zeros((M, R), tl.float32)
        for start in range(0, width, K):
            at = start + tl.arange(0, K)
            values = tl.load(x + place + at[None, :], mask=live & (at < width)[None, :], other=0.0)
            there = (rank < narrow)[None, :] & (at < width)[:, None]
            weights = tl.load(a + own + rank[None, :] * width + at[:, None], mask=there, other=0.0)
            total = tl.dot(values, weights, total)
        hidden, column = total.to(out.dtype.element_ty), tl.arange(0, N)
        added = tl.load(base + place + column[None, :], mask=live & (column < width)[None, :], other=0.0)
        for start in range(0, width, N):
            column = start + tl.arange(0, N)
            there = (column < width)[None, :] & (rank < narrow)[:, None]
            weights = tl.load(b + own + column[None, :] * narrow + rank[:, None], mask=there, other=0.0)
            ahead = column[None, :] + N  # asked for a turn before it is needed
            coming = tl.load(base + place + ahead, mask=live & (ahead < width), other=0.0)
            result = tl.dot(hidden, weights) + added
            tl.store(out + place + column[None, :], result.to(hidden.dtype), mask=live & (column < width)[None, :])
            added = coming


def prepare(x: Tensor, base: Tensor, ids: Tensor, a: Tensor, b: Tensor) -> Step:
    (projections, rows, width), (adapters, narrow) = x.shape, a.shape[1:3]
    out, sizes = torch.empty_like(base), (rows, width, narrow)
    order, ends = (ids.new_zeros(n, dtype=torch.int32) for n in (rows, adapters + 1))
    block, deep = (triton.next_power_of_2(max(n, 16)) for n in (rows, narrow))

    def step() -> Tensor:
        sort_rows[(adapters,)](ids, order, ends, rows, block, num_warps=1)
        adapt[adapters, projections](x, a, b, order, ends, base, out, *sizes, **TILE, R=deep)
        return out

    return step
