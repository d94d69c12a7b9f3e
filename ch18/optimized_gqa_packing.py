"""Query heads that share a key head are the rows of one tile: its cache is read once, and tensor cores multiply it."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_gqa_packing import workload as workload
from common.python.workload import Step

KEYS = 64  # of a tile


@triton.jit
def attend(q, k, v, out, group, keys, scale, WIDTH: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)  # a key head, of all requests
    query, column = tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    place, mask = (head * group + query[:, None]) * WIDTH + column[None, :], query[:, None] < group
    mine = tl.load(q + place, mask=mask, other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    for start in range(0, keys, KEYS):
        row = start + tl.arange(0, KEYS)
        at, live = (head * keys + row[:, None]) * WIDTH + column[None, :], row < keys
        scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        loaded = tl.load(v + at, mask=live[:, None], other=0.0)
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    tl.store(out + place, sums / total[:, None], mask=mask)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    requests, heads, keys, width = k.shape
    group, out = q.shape[2], torch.empty_like(q)
    scale = width**-0.5 * math.log2(math.e)  # weights are powers of 2
    rows = max(16, triton.next_power_of_2(group))  # the least that a product takes

    def step() -> Tensor:
        grid = (requests * heads,)
        attend[grid](q, k, v, out, group, keys, scale, width, KEYS, rows, num_warps=4, num_stages=3)
        return out

    return step
