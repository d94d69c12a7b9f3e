"""Entries of a row are linked; the last adds them all, times -rate, to the row: no gradient, no atomic sum."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch13.baseline_sparse_embedding_grad import RATE
from ch13.baseline_sparse_embedding_grad import workload as workload
from common.python.workload import Step

ENTRIES, LINKED = 8, 256  # of a program that adds: 1 KB each at the width of the bench; of one that links


@triton.jit
def link(ids, newest, older, count, LINKED: tl.constexpr):
    """Each row's entries become a list: `newest` (rows) is its last entry, `older` (count) what came before each."""
    entry = tl.program_id(0) * LINKED + tl.arange(0, LINKED)
    row = tl.load(ids + entry, mask=entry < count, other=0)
    before = tl.atomic_xchg(newest + row, entry, mask=entry < count, sem="relaxed")
    tl.store(older + entry, before, mask=entry < count)


@triton.jit
def add_rows(
    table, ids, upstream, newest, older, count, width,
    RATE: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The newest entry of a row adds all of its list, which it leaves empty for the next step: -1."""
    entry, column = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES), tl.arange(0, WIDTH)[None, :]
    row = tl.load(ids + entry, mask=entry < count, other=0)
    mine = (tl.load(newest + row, mask=entry < count, other=-1) == entry) & (entry < count)
    there, place = mine[:, None] & (column < width), table + row[:, None] * width + column
    value = tl.load(place, mask=there, other=0.0)
    total = tl.load(upstream + entry.to(tl.int64)[:, None] * width + column, mask=there, other=0.0)
    next = tl.load(older + entry, mask=mine, other=-1)
    while tl.max(next, 0) >= 0:
        linked = (next >= 0)[:, None] & (column < width)
        total += tl.load(upstream + next.to(tl.int64)[:, None] * width + column, mask=linked, other=0.0)
        next = tl.load(older + next, mask=next >= 0, other=-1)
    tl.store(place, value - RATE * total, mask=there)
    tl.store(newest + row, -1, mask=mine)


def prepare(table: Tensor, ids: Tensor, upstream: Tensor) -> Step:
    (count, width), rows = upstream.shape, len(table)
    sizes = {"RATE": RATE, "ENTRIES": ENTRIES, "WIDTH": triton.next_power_of_2(width)}
    newest, older = (torch.full((n,), -1, dtype=torch.int32, device=ids.device) for n in (rows, count))

    @torch.no_grad()
    def step() -> Tensor:
        link[(triton.cdiv(count, LINKED),)](ids, newest, older, count, LINKED, num_warps=8)
        lists = newest, older, count, width
        add_rows[(triton.cdiv(count, ENTRIES),)](table, ids, upstream, *lists, **sizes, num_warps=4)
        return table

    return step
