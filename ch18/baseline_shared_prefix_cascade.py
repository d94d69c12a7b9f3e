"""Every request attends to the common prefix and then to its own keys: the prefix is read once for each request."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.models.grouped_query import attended
from common.python.workload import Cost, Draw, Inputs, Step, Workload

KEYS = 64  # of a tile


def inputs(draw: Draw, requests: int, heads: int, group: int, prefix: int, own: int, width: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "q": draw.normal(requests, heads, group, width, dtype=element),  # one new token a request
        "common_k": draw.normal(heads, prefix, width, dtype=element),
        "common_v": draw.normal(heads, prefix, width, dtype=element),
        "own_k": draw.normal(requests, heads, own, width, dtype=element),
        "own_v": draw.normal(requests, heads, own, width, dtype=element),
    }


def reference(q: Tensor, common_k: Tensor, common_v: Tensor, own_k: Tensor, own_v: Tensor) -> Tensor:
    requests = zip(q, own_k, own_v)
    return torch.stack([attended(a, torch.cat([common_k, b], 1), torch.cat([common_v, c], 1)) for a, b, c in requests])


def cost(requests: int, heads: int, group: int, prefix: int, own: int, width: int, dtype: str) -> Cost:
    cache, queries = 2 * (prefix + requests * own) * heads * width, requests * heads * group * width
    flops = 4 * queries * (prefix + own)
    return Cost(flops=flops, dtype="bf16", read=2 * (cache + queries), write=2 * queries, items=requests, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One layer of an 8B model: a prompt of 16,384 tokens, 67 MB, that 128 requests share; 268 MB of their own.
        "bench": {
            "requests": 128,
            "heads": 8,
            "group": 4,
            "prefix": 16384,
            "own": 512,
            "width": 128,
            "dtype": "bfloat16",
        },
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 13, "heads": 2, "group": 5, "prefix": 333, "own": 87, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% on average
)


@triton.jit
def attend(
    q, common_k, common_v, own_k, own_v, out, group, prefix, own, scale,
    WIDTH: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    head, request, heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    query, column = tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    pair = request * heads + head
    place, mask = (pair * group + query[:, None]) * WIDTH + column[None, :], query[:, None] < group
    mine = tl.load(q + place, mask=mask, other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    for part in tl.static_range(2):
        k = common_k + head.to(tl.int64) * prefix * WIDTH if part == 0 else own_k + pair * own * WIDTH
        v = common_v + head.to(tl.int64) * prefix * WIDTH if part == 0 else own_v + pair * own * WIDTH
        keys = prefix if part == 0 else own
        for start in range(0, keys, KEYS):
            row = start + tl.arange(0, KEYS)
            at, live = row[:, None] * WIDTH + column[None, :], row < keys
            scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
            scores = tl.where(live[None, :], scores, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, axis=1))
            weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
            loaded = tl.load(v + at, mask=live[:, None], other=0.0)
            sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
            total, peak = total * shrink + tl.sum(weights, axis=1), higher
    tl.store(out + place, sums / total[:, None], mask=mask)


def prepare(q: Tensor, common_k: Tensor, common_v: Tensor, own_k: Tensor, own_v: Tensor) -> Step:
    requests, heads, group, width = q.shape
    out, scale = torch.empty_like(q), width**-0.5 * math.log2(math.e)  # weights are powers of 2
    rows = max(16, triton.next_power_of_2(group))  # the least that a product takes
    sizes = (group, common_k.shape[1], own_k.shape[2], scale, width, KEYS, rows)

    def step() -> Tensor:
        attend[heads, requests](q, common_k, common_v, own_k, own_v, out, *sizes, num_warps=4, num_stages=3)
        return out

    return step
