"""A program walks the whole cache of a request and key head: the longest request ends long after all others."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.models.grouped_query import attended
from common.models.lengths import length_mix
from common.python.workload import Cost, Draw, Inputs, Step, Workload

KEYS = 64  # of a tile


def inputs(
    draw: Draw, requests: int, heads: int, group: int, mean: float, longest: int, spread: float, width: int, dtype: str
) -> Inputs:
    """Keys and values of all requests, one request after the other, and where each begins."""
    mix, element = length_mix(requests, mean, longest, spread), getattr(torch, dtype)
    lengths, cache = torch.tensor(mix, device=draw.device)[draw.permutation(requests)], (sum(mix), heads, width)
    return {
        "q": draw.normal(requests, heads, group, width, dtype=element),  # one new token a request
        "k": draw.normal(*cache, dtype=element),
        "v": draw.normal(*cache, dtype=element),
        "starts": torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]),
    }


def reference(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
    caches = zip(*(x.transpose(0, 1).split(starts.diff().tolist(), dim=1) for x in (k, v)))
    return torch.stack([attended(queries, *cache) for queries, cache in zip(q, caches)])


def cost(
    requests: int, heads: int, group: int, mean: float, longest: int, spread: float, width: int, dtype: str
) -> Cost:
    cache = 2 * sum(length_mix(requests, mean, longest, spread)) * heads * width
    queries = requests * heads * group * width
    moved = {"read": 2 * (cache + queries) + 8 * requests, "write": 2 * queries}
    return Cost(flops=2 * group * cache, dtype="bf16", **moved, items=requests, unit="tokens")


LENGTHS = {"mean": 4096.0, "longest": 65536, "spread": 1.5}
workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One layer of an 8B model: 244,000 tokens, of which the longest request has 50,000; 1 GB of keys and values.
        "bench": {"requests": 64, "heads": 8, "group": 4, **LENGTHS, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 5, "heads": 2, "group": 3, **LENGTHS, "mean": 1200.0, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% on average
)


@triton.jit
def attend(q, k, v, starts, out, group, scale, WIDTH: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr):
    request, head, heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    query, column = tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    place = ((request * heads + head) * group + query[:, None]) * WIDTH + column[None, :]
    mine = tl.load(q + place, mask=query[:, None] < group, other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    end = tl.load(starts + request + 1)
    for start in range(tl.load(starts + request), end, KEYS):
        row = start + tl.arange(0, KEYS)
        at, live = (row[:, None] * heads + head) * WIDTH + column[None, :], row < end
        scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        loaded = tl.load(v + at, mask=live[:, None], other=0.0)
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    tl.store(out + place, sums / total[:, None], mask=query[:, None] < group)


def prepare(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Step:
    requests, heads, group, width = q.shape
    out, scale = torch.empty_like(q), width**-0.5 * math.log2(math.e)  # weights are powers of 2
    rows = max(16, triton.next_power_of_2(group))  # the least that a product takes
    sizes = (group, scale, width, KEYS, rows)

    def step() -> Tensor:
        attend[requests, heads](q, k, v, starts, out, *sizes, num_warps=4, num_stages=3)
        return out

    return step
