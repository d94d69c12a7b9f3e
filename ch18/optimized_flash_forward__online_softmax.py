"""Tiles of keys stream past a tile of queries; a running maximum and sum let no score ever leave the multiprocessor."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from ch18.baseline_flash_forward import workload as workload
from common.python.workload import Step


@triton.jit
def take_keys(q, keys, values, at, left, sums, total, peak, scale, KEYS: tl.constexpr, PART: tl.constexpr):
    """Rows `at` to `at` + KEYS of keys and values, of which `left` count: new sums [QUERIES, WIDTH], totals and peaks.

    The softmax's weights are powers of 2 on the scale of the largest so far, and are divided by their total at the end.
    """
    scores = tl.dot(q, keys.load([at, 0]).T)
    if PART:
        scores = tl.where(tl.arange(0, KEYS)[None, :] < left, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, axis=1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])
    shrink = tl.exp2(peak - higher)  # what came before, on the new scale
    total = total * shrink + tl.sum(weights, axis=1)
    loaded = values.load([at, 0])
    sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
    return sums, total, higher


@triton.jit
def attend(q, keys, values, out, tokens, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """A tile of queries of one head: q, keys and values describe [heads * tokens, WIDTH]."""
    head, first = tl.program_id(1) * tokens, tl.program_id(0) * QUERIES
    mine = q.load([head + first, 0])
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    whole = tokens // KEYS * KEYS
    for start in range(0, whole, KEYS):
        sums, total, peak = take_keys(mine, keys, values, head + start, KEYS, sums, total, peak, scale, KEYS, False)
    if whole < tokens:
        at, left = head + whole, tokens - whole
        sums, total, peak = take_keys(mine, keys, values, at, left, sums, total, peak, scale, KEYS, True)
    row, column = first + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    place = out + (head + row).to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(place, sums / total[:, None], mask=row[:, None] < tokens)


def tile() -> tuple[int, int, int, int]:
    """Queries and keys of a tile, warps, and how many tiles of keys there is room for.

    On Hopper a block is one warpgroup, and several share a multiprocessor: one multiplies while another finds its
    weights. Where shared memory is small and sums stay in registers, tiles have fewer keys and sums more warps; without
    TMA, on Ampere and Ada, addresses take registers too, and tiles of 64 keys would spill.
    """
    major = 0 if knobs.runtime.interpret else torch.cuda.get_device_capability()[0]
    return {8: (128, 32, 8, 2), 9: (64, 128, 4, 1), 10: (128, 128, 8, 3)}.get(major, (128, 64, 8, 2))


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out = torch.empty_like(q)
    # What TMA copies: boxes of all columns of some rows. A box may reach into the next head; those scores are masked.
    queries, keys, warps, stages = tile()
    rows = (queries, keys, keys)
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width]) for x, n in zip((q, k, v), rows)]
    grid, scale = (triton.cdiv(tokens, queries), heads), width**-0.5 * math.log2(math.e)

    def step() -> Tensor:
        attend[grid](*boxes, out, tokens, scale, width, queries, keys, num_warps=warps, num_stages=stages)
        return out

    return step
