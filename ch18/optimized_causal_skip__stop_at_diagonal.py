"""The loop ends at the diagonal, only tiles that it cuts are masked, and the longest rows of tiles begin first."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_causal_skip import boxes, take_keys, tile
from ch18.baseline_causal_skip import workload as workload
from common.python.workload import Step


@triton.jit
def attend(q, keys, values, out, tokens, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    head, first = tl.program_id(0) * tokens, (tl.num_programs(1) - 1 - tl.program_id(1)) * QUERIES
    mine, row = q.load([head + first, 0]), first + tl.arange(0, QUERIES)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    whole = first // KEYS * KEYS  # what lies before it, every query of this tile sees
    for start in range(0, whole, KEYS):
        column = start + tl.arange(0, KEYS)
        sums, total, peak = take_keys(mine, keys, values, head + start, row, column, sums, total, peak, scale, False)
    for start in range(whole, tl.minimum(first + QUERIES, tokens), KEYS):
        column = start + tl.arange(0, KEYS)
        sums, total, peak = take_keys(mine, keys, values, head + start, row, column, sums, total, peak, scale, True)
    place = out + (head + row).to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(place, sums / total[:, None], mask=row[:, None] < tokens)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, (queries, keys, warps, stages) = torch.empty_like(q), tile()
    described, scale = boxes(q, k, v, queries, keys), width**-0.5 * math.log2(math.e)
    grid = (heads, triton.cdiv(tokens, queries))  # all heads' longest rows come before any other

    def step() -> Tensor:
        attend[grid](*described, out, tokens, scale, width, queries, keys, num_warps=warps, num_stages=stages)
        return out

    return step
