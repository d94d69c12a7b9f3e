"""One program for each request and key head walks the whole cache: eight programs on 132 multiprocessors."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.models.grouped_query import attended, decode_cost, decode_inputs
from common.python.workload import Step, Workload

KEYS = 64  # of a tile


workload = Workload(
    inputs=decode_inputs,
    reference=lambda q, k, v: torch.stack([attended(*one) for one in zip(q, k, v)]),
    cost=decode_cost,
    sizes={
        # An 8B model's heads, one layer: 512 MiB of keys and values.
        "bench": {"requests": 1, "heads": 8, "group": 4, "keys": 131072, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 2, "heads": 3, "group": 5, "keys": 1237, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% on average
)


@triton.jit
def attend_all(q, k, v, out, group, keys, scale, WIDTH: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)  # of all requests
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
    requests, heads, group, width = q.shape
    keys, out = k.shape[2], torch.empty_like(q)
    scale = width**-0.5 * math.log2(math.e)  # weights are powers of 2
    rows = max(16, triton.next_power_of_2(group))  # the least that a product takes

    def step() -> Tensor:
        grid = (requests * heads,)
        attend_all[grid](q, k, v, out, group, keys, scale, width, KEYS, rows, num_warps=4, num_stages=3)
        return out

    return step
