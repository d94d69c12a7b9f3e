"""The kernel looks up its pages and loads them straight into its tiles: nothing is copied together."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_paged_decode import PAGE
from ch18.baseline_paged_decode import workload as workload
from common.python.workload import Step

KEYS = 128  # of a tile, eight pages


@triton.jit
def attend(
    q,
    k,
    v,
    table,
    out,
    heads,
    group,
    pages,
    scale,
    WIDTH: tl.constexpr,
    PAGE: tl.constexpr,
    KEYS: tl.constexpr,
    QUERIES: tl.constexpr,
):
    request, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query, column = tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    place = ((request * heads + head) * group + query[:, None]) * WIDTH + column[None, :]
    mask = query[:, None] < group
    mine = tl.load(q + place, mask=mask, other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    for start in range(0, pages * PAGE, KEYS):
        row = start + tl.arange(0, KEYS)
        live = row < pages * PAGE
        page = tl.load(table + request * pages + row // PAGE, mask=live, other=0).to(tl.int64)
        at = ((page * PAGE + row % PAGE) * heads + head)[:, None] * WIDTH + column[None, :]
        scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        loaded = tl.load(v + at, mask=live[:, None], other=0.0)
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    tl.store(out + place, sums / total[:, None], mask=mask)


def prepare(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Step:
    (requests, pages), heads, width = table.shape, k.shape[2], k.shape[3]
    group, out = q.shape[1] // heads, torch.empty_like(q)
    scale = width**-0.5 * math.log2(math.e)  # weights are powers of 2
    rows = max(16, triton.next_power_of_2(group))  # the least that a product takes
    sizes = (heads, group, pages, scale, width, PAGE, KEYS, rows)

    def step() -> Tensor:
        attend[(requests, heads)](q, k, v, table, out, *sizes, num_warps=4, num_stages=2)
        return out

    return step
