"""Every program takes as many tiles of keys, one request after the other; a second kernel merges their parts."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_balanced_ragged_decode import KEYS
from ch18.baseline_balanced_ragged_decode import workload as workload
from common.python.workload import Step

EACH = 3  # programs of a multiprocessor


@triton.jit
def ends_of_tiles(starts, request, requests, KEYS: tl.constexpr):
    """How many tiles there are up to and with each request."""
    first = tl.load(starts + request, mask=request < requests, other=0)
    end = tl.load(starts + request + 1, mask=request < requests, other=0)
    return tl.cumsum((end - first + KEYS - 1) // KEYS, axis=0)


@triton.jit
def attend(
    q, k, v, starts, sums_of, logs_of, requests, group, scale,
    WIDTH: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr, REQUESTS: tl.constexpr,
):  # fmt: skip
    """The attention of a group's queries to a program's share of each request, and its weights' totals (log 2)."""
    head, program, heads, programs = tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1)
    each, query, column = tl.arange(0, REQUESTS), tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    ends = ends_of_tiles(starts, each, requests, KEYS)
    tiles = tl.max(ends)
    shares = tl.minimum(programs, tiles)  # a program's is one tile at least, if it has any
    tile, stop = program * tiles // shares, tl.minimum((program + 1) * tiles // shares, tiles)
    request = tl.sum(((ends <= tile) & (each < requests)).to(tl.int64))
    before = tl.max(tl.where(ends <= tile, ends, 0))  # tiles of earlier requests
    while tile < stop:
        first, end = tl.load(starts + request), tl.load(starts + request + 1)
        low = first + (tile - before) * KEYS
        high = tl.minimum(first + (stop - before) * KEYS, end)
        mask = query < group
        place = ((request * heads + head) * group + query[:, None]) * WIDTH + column[None, :]
        mine = tl.load(q + place, mask=mask[:, None], other=0.0)
        sums = tl.zeros((QUERIES, WIDTH), tl.float32)
        total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
        for start in range(low, high, KEYS):
            row = start + tl.arange(0, KEYS)
            at, live = (row[:, None] * heads + head) * WIDTH + column[None, :], row < end
            scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
            scores = tl.where(live[None, :], scores, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, axis=1))
            weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
            loaded = tl.load(v + at, mask=live[:, None], other=0.0)
            sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
            total, peak = total * shrink + tl.sum(weights, axis=1), higher
        slot = ((program + request) * heads + head) * group + query  # either grows from part to part
        tl.store(sums_of + slot[:, None] * WIDTH + column[None, :], sums / total[:, None], mask=mask[:, None])
        tl.store(logs_of + slot, peak + tl.log2(total), mask=mask)
        before += (end - first + KEYS - 1) // KEYS
        tile, request = before, request + 1


@triton.jit
def merge(
    sums_of, logs_of, starts, out, requests, programs,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, REQUESTS: tl.constexpr,
):  # fmt: skip
    """The attention of one query to all keys: that to the parts, 16 at a time, weighted by their totals."""
    request, query, queries = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    each, column = tl.arange(0, REQUESTS), tl.arange(0, WIDTH)
    ends = ends_of_tiles(starts, each, requests, KEYS)
    tiles, end = tl.max(ends), tl.sum(tl.where(each == request, ends, 0))
    tile = tl.sum(tl.where(each == request - 1, ends, 0))
    shares = tl.minimum(programs, tiles)
    first = ((tile + 1) * shares - 1) // tiles + request  # of the program with its first tile, and with its last
    last = (end * shares - 1) // tiles + request
    sums = tl.zeros((WIDTH,), tl.float32)
    total, peak = 0.0, float("-inf")
    for low in range(first, last + 1, 16):
        part = low + tl.arange(0, 16)
        slot, live = part * queries + query, part <= last
        logs = tl.load(logs_of + slot, mask=live, other=float("-inf"))
        higher = tl.maximum(peak, tl.max(logs, axis=0))
        weights, shrink = tl.exp2(logs - higher), tl.exp2(peak - higher)
        parts = tl.load(sums_of + slot[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
        sums = sums * shrink + tl.sum(parts * weights[:, None], axis=0)
        total, peak = total * shrink + tl.sum(weights, axis=0), higher
    tl.store(out + (request * queries + query) * WIDTH + column, sums / total)


def prepare(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Step:
    (requests, heads, group, width), out = q.shape, torch.empty_like(q)
    cores = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 4
    programs = max(1, EACH * cores // heads)  # for each head
    sums = q.new_empty(programs + requests, heads, group, width, dtype=torch.float32)
    logs = q.new_empty(programs + requests, heads, group, dtype=torch.float32)
    scale, each = width**-0.5 * math.log2(math.e), triton.next_power_of_2(requests)
    rows = max(16, triton.next_power_of_2(group))  # the least that a product takes
    sizes = (requests, group, scale, width, KEYS, rows, each)

    def step() -> Tensor:
        attend[heads, programs](q, k, v, starts, sums, logs, *sizes, num_warps=4, num_stages=3)
        merge[requests, heads * group](sums, logs, starts, out, requests, programs, KEYS, width, each, num_warps=4)
        return out

    return step
