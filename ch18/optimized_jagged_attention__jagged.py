"""Tiles are of packed histories: nothing is padded, and of all users' tiles those that see the most keys come first."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch18.baseline_jagged_attention import plan, silu, tiles_of
from ch18.baseline_jagged_attention import workload as workload
from common.python.workload import Step

QUERIES, KEYS = 64, 64


@triton.jit
def attend(
    q, keys, values, starts, tiles, out, heads, most, scale, share,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """A tile of queries of a user and head: keys and values describe [tokens, heads * WIDTH]."""
    entry, head = tl.load(tiles + tl.program_id(0) // heads), tl.program_id(0) % heads
    user, first = entry // most, entry % most * QUERIES
    start = tl.load(starts + user)
    length = tl.load(starts + user + 1) - start
    row, column = first + tl.arange(0, QUERIES), head * WIDTH
    place = (start + row).to(tl.int64)[:, None] * heads * WIDTH + column + tl.arange(0, WIDTH)[None, :]
    mine = tl.load(q + place, mask=row[:, None] < length, other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    for at in range(0, first, KEYS):  # every query sees every key
        weights = silu(tl.dot(mine, keys.load([start + at, column]).T) * scale, FAST)
        loaded = values.load([start + at, column])
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums)
    for at in range(first, tl.minimum(first + QUERIES, length), KEYS):  # tiles that the diagonal cuts
        weights = silu(tl.dot(mine, keys.load([start + at, column]).T) * scale, FAST)
        weights = tl.where(at + tl.arange(0, KEYS)[None, :] <= row[:, None], weights, 0.0)
        loaded = values.load([start + at, column])
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums)
    tl.store(out + place, (sums * share).to(out.dtype.element_ty), mask=row[:, None] < length)


def prepare(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, starts: Tensor) -> Step:
    tokens, heads, width = q.shape
    out, scale, fast = torch.empty_like(q), width**-0.5 / 2, not triton.knobs.runtime.interpret
    keys, values = (TensorDescriptor.from_tensor(x.view(tokens, -1), [KEYS, width]) for x in (k, v))
    tiles = starts.new_empty(len(lengths) + tokens // QUERIES)

    def step() -> Tensor:
        longest, most, number = tiles_of(lengths, QUERIES)
        plan(starts, tiles, most, QUERIES)
        sizes = (heads, most, scale, 1 / longest, width, QUERIES, KEYS, fast)
        attend[(number * heads,)](q, keys, values, starts, tiles, out, *sizes, num_warps=4, num_stages=3)
        return out

    return step
