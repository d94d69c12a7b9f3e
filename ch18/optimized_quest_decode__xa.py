"""Bounds of all pages are ranked against the queries, and attention reads the sixteenth that could score highest."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_quest_decode import SHARE, attention
from ch18.baseline_quest_decode import workload as workload
from common.python.workload import Step

PAGES = 32  # whose bounds a program of `bound` reads, 16 KB


@triton.jit
def bound(
    q, low, high, table, bounds, heads, group, pages, WIDTH: tl.constexpr, PAGES: tl.constexpr, GROUP: tl.constexpr
):
    """No key of a page gives a query more than this: of each column the greatest where q > 0, or else the least."""
    head, request, query = tl.program_id(1), tl.program_id(2).to(tl.int64), tl.arange(0, GROUP)
    page, column, both = tl.program_id(0) * PAGES + tl.arange(0, PAGES), tl.arange(0, WIDTH), request * heads + head
    place = q + (both * group + query[:, None]) * WIDTH + column[None, :]
    turned = tl.load(place, mask=query[:, None] < group, other=0.0).to(tl.float32)
    above, below = tl.sum(tl.maximum(turned, 0.0), axis=0), tl.sum(tl.minimum(turned, 0.0), axis=0)
    own = tl.load(table + request * pages + page, mask=page < pages, other=0).to(tl.int64)
    at, live = (own * heads + head)[:, None] * WIDTH + column[None, :], page[:, None] < pages
    most = tl.load(high + at, mask=live, other=0.0).to(tl.float32) * above[None, :]
    least = tl.load(low + at, mask=live, other=0.0).to(tl.float32) * below[None, :]
    tl.store(bounds + both * pages + page, tl.sum(most + least, axis=1), mask=page < pages)


@triton.jit
def choose(bounds, table, lists, heads, pages, kept, ALL: tl.constexpr):
    """The pages of the `kept` greatest bounds, in their order: the last one's bits are found one by one."""
    head, request, page = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, ALL)
    both = request * heads + head
    bits = tl.load(bounds + both * pages + page, mask=page < pages, other=float("-inf")).to(tl.int32, bitcast=True)
    rank = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # in the order of the floats
    least = tl.where(tl.sum((rank >= 0).to(tl.int32), axis=0) >= kept, 0, -2147483648)
    for turn in range(31):
        trial = least | (1 << (30 - turn))
        least = tl.where(tl.sum((rank >= trial).to(tl.int32), axis=0) >= kept, trial, least)
    greater, equal = (rank > least).to(tl.int32), (rank == least).to(tl.int32)
    counted = tl.cumsum(greater + (equal << 16), axis=0)  # both in one scan
    equals, spare = counted >> 16, kept - tl.sum(greater, axis=0)
    place = (counted & 0xFFFF) + tl.minimum(equals, spare) - 1
    chosen = (rank > least) | ((rank == least) & (equals <= spare))
    own = tl.load(table + request * pages + page, mask=page < pages, other=0)
    tl.store(lists + both * kept + place, own, mask=chosen)


def prepare(q: Tensor, k: Tensor, v: Tensor, table: Tensor, low: Tensor, high: Tensor) -> Step:
    (requests, pages), (_, heads, _, width) = table.shape, k.shape
    bounds = q.new_empty(requests, heads, pages, dtype=torch.float32)
    kept, group, power = pages // SHARE, q.shape[1] // heads, triton.next_power_of_2
    lists = table.new_empty(requests, heads, kept)
    attend = attention(q, k, v, lists)

    def step() -> Tensor:
        grid = triton.cdiv(pages, PAGES), heads, requests
        bound[grid](q, low, high, table, bounds, heads, group, pages, width, PAGES, power(group), num_warps=4)
        choose[heads, requests](bounds, table, lists, heads, pages, kept, power(pages), num_warps=4)
        return attend()

    return step
