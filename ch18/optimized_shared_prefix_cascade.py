"""Queries of all requests are rows of one product with the prefix; a second stream reads own keys at the same time."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_shared_prefix_cascade import workload as workload
from common.models.merge import merge
from common.python.workload import Step

# A multiprocessor has room for a program of the prefix, with 128 KiB of shared memory, and two of own keys beside it.
PARTS = 4  # of the prefix: with 32 tiles of queries a program for nearly each multiprocessor
PREFIX = {"KEYS": 64, "QUERIES": 128, "num_warps": 8, "num_stages": 3}
OWN = {"KEYS": 32, "num_warps": 4, "num_stages": 3}


@triton.jit
def attend(
    q, k, v, sums_of, logs_of, sharing, heads, group, keys, share, first, slots, scale,
    WIDTH: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """The attention to a part of a head's keys by the queries of all requests that share them, and the logs."""
    part, tile, both = tl.program_id(1), tl.program_id(0), tl.program_id(2).to(tl.int64)
    row, column = tile * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    mask = row < sharing * group
    request = both // heads * sharing + row // group
    query = (request * heads + both % heads) * group + row % group
    mine = tl.load(q + query[:, None] * WIDTH + column[None, :], mask=mask[:, None], other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    for start in range(part * share, tl.minimum(part * share + share, keys), KEYS):
        key = start + tl.arange(0, KEYS)
        at, live = (both * keys + key[:, None]) * WIDTH + column[None, :], key < keys
        scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        loaded = tl.load(v + at, mask=live[:, None], other=0.0)
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    slot = query * slots + first + part
    tl.store(sums_of + slot[:, None] * WIDTH + column[None, :], sums / total[:, None], mask=mask[:, None])
    tl.store(logs_of + slot, peak + tl.log2(total), mask=mask)


def prepare(q: Tensor, common_k: Tensor, common_v: Tensor, own_k: Tensor, own_v: Tensor) -> Step:
    (requests, heads, group, width), out = q.shape, torch.empty_like(q)
    prefix, own = common_k.shape[1], own_k.shape[2]
    share = triton.cdiv(triton.cdiv(prefix, PARTS), PREFIX["KEYS"]) * PREFIX["KEYS"]
    parts = triton.cdiv(prefix, share)  # and one more, a request's own keys
    sums = q.new_empty(requests * heads * group, parts + 1, width, dtype=torch.float32)
    logs = q.new_empty(requests * heads * group, parts + 1, dtype=torch.float32)
    scale = width**-0.5 * math.log2(math.e)  # weights are powers of 2
    few = max(16, triton.next_power_of_2(group))  # the least that a product takes
    tiles, power = triton.cdiv(requests * group, PREFIX["QUERIES"]), triton.next_power_of_2(parts + 1)
    side = torch.cuda.Stream() if q.is_cuda else None  # Triton's interpreter runs the kernels in turn

    def step() -> Tensor:
        to, last = (sums, logs), (parts + 1, scale, width)
        if side:
            side.wait_stream(torch.cuda.current_stream())  # the last step has read sums and logs
        attend[tiles, parts, heads](
            q, common_k, common_v, *to, requests, heads, group, prefix, share, 0, *last, **PREFIX
        )
        with torch.cuda.stream(side):
            attend[1, 1, requests * heads](
                q, own_k, own_v, *to, 1, heads, group, own, own, parts, *last, QUERIES=few, **OWN
            )
        if side:
            torch.cuda.current_stream().wait_stream(side)
        merge[1, len(sums)](sums, logs, out, 1, parts + 1, WIDTH=width, PARTS=power, num_warps=1)
        return out

    return step
