"""The loop begins with the window of a tile's first query and ends at the diagonal; its edges alone are masked."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from ch18.baseline_sliding_window import workload as workload
from common.python.workload import Step


@triton.jit
def take_keys(
    q, keys, values, head, start, row, window, sums, total, peak, scale, MASKED: tl.constexpr, KEYS: tl.constexpr
):
    """A tile of keys and values from `start` on: new sums, totals and peaks. Weights are powers of 2."""
    scores = tl.dot(q, keys.load([head + start, 0]).T) * scale
    higher = tl.maximum(peak, tl.max(scores, axis=1))
    if MASKED:
        behind = row[:, None] - (start + tl.arange(0, KEYS))[None, :]  # how far the key is behind the query
        scores = tl.where((behind >= 0) & (behind < window), scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        higher = tl.where(higher == float("-inf"), 0.0, higher)  # this query has seen no key yet
    weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
    loaded = values.load([head + start, 0])
    sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
    return sums, total * shrink + tl.sum(weights, axis=1), higher


@triton.jit
def attend(q, keys, values, out, tokens, window, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    head, first = tl.program_id(0) * tokens, tl.program_id(1) * QUERIES
    mine, row = q.load([head + first, 0]), first + tl.arange(0, QUERIES)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    begin = tl.maximum(first - window + 1, 0) // KEYS * KEYS
    inside = tl.maximum(
        begin, tl.cdiv(tl.maximum(first + QUERIES - window, 0), KEYS) * KEYS
    )  # in every window from here
    diagonal = tl.maximum(inside, first // KEYS * KEYS)  # and to here
    end = tl.minimum(first + QUERIES, tokens)
    for start in range(begin, tl.minimum(inside, end), KEYS):
        sums, total, peak = take_keys(
            mine, keys, values, head, start, row, window, sums, total, peak, scale, True, KEYS
        )
    for start in range(inside, diagonal, KEYS):
        sums, total, peak = take_keys(
            mine, keys, values, head, start, row, window, sums, total, peak, scale, False, KEYS
        )
    for start in range(diagonal, end, KEYS):
        sums, total, peak = take_keys(
            mine, keys, values, head, start, row, window, sums, total, peak, scale, True, KEYS
        )
    place = out + (head + row).to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(place, sums / total[:, None], mask=row[:, None] < tokens)


def prepare(q: Tensor, k: Tensor, v: Tensor, window: int) -> Step:
    heads, tokens, width = q.shape
    major = 0 if knobs.runtime.interpret else torch.cuda.get_device_capability()[0]
    tile = {8: (128, 32, 8, 2), 9: (64, 128, 4, 1), 10: (128, 128, 8, 3)}  # as in flash_forward
    queries, keys, warps, stages = tile.get(major, (128, 64, 8, 2))
    rows, out = (queries, keys, keys), torch.empty_like(q)
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width]) for x, n in zip((q, k, v), rows)]
    grid, scale = (heads, triton.cdiv(tokens, queries)), width**-0.5 * math.log2(math.e)

    def step() -> Tensor:
        attend[grid](*boxes, out, tokens, window, scale, width, queries, keys, num_warps=warps, num_stages=stages)
        return out

    return step
