"""Backward and update are one kernel, which adds what came, times -rate, to the rows: no gradient is made at all."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch13.baseline_sparse_embedding_grad import RATE
from ch13.baseline_sparse_embedding_grad import workload as workload
from common.python.workload import Step

ENTRIES = 8  # of a program: 1 KB each at the width of the bench


@triton.jit
def add_rows(table, ids, upstream, count, width, RATE: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr):
    entry, column = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES), tl.arange(0, WIDTH)
    there = (entry < count)[:, None] & (column < width)[None, :]
    row = tl.load(ids + entry, mask=entry < count, other=0)
    came = tl.load(upstream + entry.to(tl.int64)[:, None] * width + column[None, :], mask=there, other=0.0)
    tl.atomic_add(table + row[:, None] * width + column[None, :], -RATE * came, mask=there, sem="relaxed")


def prepare(table: Tensor, ids: Tensor, upstream: Tensor) -> Step:
    count, width = upstream.shape
    sizes = {"RATE": RATE, "ENTRIES": ENTRIES, "WIDTH": triton.next_power_of_2(width)}

    @torch.no_grad()
    def step() -> Tensor:
        add_rows[(triton.cdiv(count, ENTRIES),)](table, ids, upstream, count, width, **sizes, num_warps=4)
        return table

    return step
