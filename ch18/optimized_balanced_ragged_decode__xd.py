"""Each program takes 512 keys, which it finds by a prefix sum over lengths; a second kernel merges the pieces."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_balanced_ragged_decode import KEYS
from ch18.baseline_balanced_ragged_decode import workload as workload
from common.python.workload import Step

PIECE = 8 * KEYS


@triton.jit
def ends_of_pieces(starts, request, requests, PIECE: tl.constexpr):
    """How many pieces there are up to and with each request."""
    first = tl.load(starts + request, mask=request < requests, other=0)
    end = tl.load(starts + request + 1, mask=request < requests, other=0)
    return tl.cumsum((end - first + PIECE - 1) // PIECE, axis=0)


@triton.jit
def attend(
    q, k, v, starts, sums_of, logs_of, requests, group, scale,
    WIDTH: tl.constexpr, KEYS: tl.constexpr, PIECE: tl.constexpr, QUERIES: tl.constexpr, REQUESTS: tl.constexpr,
):  # fmt: skip
    """The attention of a group's queries to one piece, and the log of its weights' total (base 2)."""
    piece, head, heads = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    each = tl.arange(0, REQUESTS)
    ends = ends_of_pieces(starts, each, requests, PIECE)
    request = tl.sum(((ends <= piece) & (each < requests)).to(tl.int64))
    before = tl.max(tl.where(ends <= piece, ends, 0))  # pieces of earlier requests
    known = request < requests  # there may be fewer pieces than programs
    low = tl.load(starts + request, mask=known, other=0) + (piece - before) * PIECE
    end = tl.minimum(low + PIECE, tl.load(starts + request + 1, mask=known, other=0))
    query, column = tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    mask = (query < group) & known
    place = ((request * heads + head) * group + query[:, None]) * WIDTH + column[None, :]
    mine = tl.load(q + place, mask=mask[:, None], other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    for start in range(low, end, KEYS):
        row = start + tl.arange(0, KEYS)
        at, live = (row[:, None] * heads + head) * WIDTH + column[None, :], row < end
        scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        loaded = tl.load(v + at, mask=live[:, None], other=0.0)
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    slot = (piece * heads + head) * group + query
    tl.store(sums_of + slot[:, None] * WIDTH + column[None, :], sums / total[:, None], mask=mask[:, None])
    tl.store(logs_of + slot, peak + tl.log2(total), mask=mask)


@triton.jit
def merge(sums_of, logs_of, starts, out, requests, PIECE: tl.constexpr, WIDTH: tl.constexpr, REQUESTS: tl.constexpr):
    """The attention of one query to all keys: that to the pieces, 16 at a time, weighted by their totals."""
    request, query, queries = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    each, column = tl.arange(0, REQUESTS), tl.arange(0, WIDTH)
    ends = ends_of_pieces(starts, each, requests, PIECE)
    end = tl.sum(tl.where(each == request, ends, 0))
    sums = tl.zeros((WIDTH,), tl.float32)
    total, peak = 0.0, float("-inf")
    for first in range(tl.sum(tl.where(each == request - 1, ends, 0)), end, 16):
        piece = first + tl.arange(0, 16)
        slot, live = piece * queries + query, piece < end
        logs = tl.load(logs_of + slot, mask=live, other=float("-inf"))
        higher = tl.maximum(peak, tl.max(logs, axis=0))
        weights, shrink = tl.exp2(logs - higher), tl.exp2(peak - higher)
        parts = tl.load(sums_of + slot[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
        sums = sums * shrink + tl.sum(parts * weights[:, None], axis=0)
        total, peak = total * shrink + tl.sum(weights, axis=0), higher
    tl.store(out + (request * queries + query) * WIDTH + column, sums / total)


def prepare(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Step:
    (requests, heads, group, width), out = q.shape, torch.empty_like(q)
    most = len(k) // PIECE + requests  # pieces, whatever the lengths are
    sums = q.new_empty(most, heads, group, width, dtype=torch.float32)
    logs = q.new_empty(most, heads, group, dtype=torch.float32)
    scale, each = width**-0.5 * math.log2(math.e), triton.next_power_of_2(requests)
    rows = max(16, triton.next_power_of_2(group))  # the least that a product takes
    sizes = (requests, group, scale, width, KEYS, PIECE, rows, each)

    def step() -> Tensor:
        attend[heads, most](q, k, v, starts, sums, logs, *sizes, num_warps=4, num_stages=3)
        merge[requests, heads * group](sums, logs, starts, out, requests, PIECE, width, each, num_warps=4)
        return out

    return step
