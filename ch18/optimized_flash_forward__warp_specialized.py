"""A warp copies, and two warpgroups share the queries out of step: one multiplies while the other finds weights."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch18.baseline_flash_forward import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # the compiler's pass is Hopper's
QUERIES, KEYS = 128, 128


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
def attend(
    q,
    keys,
    values,
    out,
    tokens,
    scale,
    WIDTH: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """A tile of queries of one head: keys and values describe [heads * tokens, WIDTH], as q's rows are.

    Specialized, a warp copies, and two warpgroups take half of the queries each. Nothing keeps these in step, so one
    multiplies while the other finds its weights. The compiler halves what q describes, which it may only do in here.
    """
    head, first = tl.program_id(1) * tokens, tl.program_id(0) * QUERIES
    rows = tl.num_programs(1) * tokens
    mine = tl.make_tensor_descriptor(q, [rows, WIDTH], [WIDTH, 1], [QUERIES, WIDTH]).load([head + first, 0])
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    whole = tokens // KEYS * KEYS
    for start in tl.range(0, whole, KEYS, warp_specialize=WHOLE):
        sums, total, peak = take_keys(mine, keys, values, head + start, KEYS, sums, total, peak, scale, KEYS, False)
    if not WHOLE:
        at, left = head + whole, tokens - whole
        sums, total, peak = take_keys(mine, keys, values, at, left, sums, total, peak, scale, KEYS, True)
    row, column = first + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    place = out + (head + row).to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(place, sums / total[:, None], mask=row[:, None] < tokens)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out = torch.empty_like(q)
    whole = tokens % KEYS == 0  # the compiler cannot specialize a loop that a partial tile follows
    # What TMA copies: boxes of all columns of some rows. A box may reach into the next head; those scores are masked.
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [KEYS, width]) for x in (k, v)]
    shape = width, QUERIES, KEYS, whole
    grid, scale = (triton.cdiv(tokens, QUERIES), heads), width**-0.5 * math.log2(math.e)

    def scratch(size: int, alignment: int, stream: int | None) -> Tensor:
        """Where a kernel puts what it describes by itself: q."""
        return torch.empty(size, dtype=torch.int8, device=q.device)

    def step() -> Tensor:
        triton.set_allocator(scratch)
        attend[grid](q, *boxes, out, tokens, scale, *shape, num_warps=4 if whole else 8, num_stages=2)
        return out

    return step
