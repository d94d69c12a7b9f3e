"""The tiles of queries that would be left for a last, nearly empty wave share out their keys, and fill one."""

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
def attend(
    q, keys, values, out, sums_of, logs_of, tokens, whole, parts, share, scale,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """`whole` tiles of queries see all keys; of each later one, `parts` programs see `share` keys each."""
    number, column = tl.program_id(0), tl.arange(0, WIDTH)
    split = tl.maximum(number - whole, 0)
    tile, begin, end = tl.minimum(number, whole) + split // parts, split % parts * share, tokens
    if number >= whole:
        end = tl.minimum(begin + share, tokens)
    head, first = tile // tl.cdiv(tokens, QUERIES) * tokens, tile % tl.cdiv(tokens, QUERIES) * QUERIES
    mine, row = q.load([head + first, 0]), tl.arange(0, QUERIES)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    even = begin + (end - begin) // KEYS * KEYS
    for start in range(begin, even, KEYS):
        sums, total, peak = take_keys(mine, keys, values, head + start, KEYS, sums, total, peak, scale, KEYS, False)
    if even < end:
        at, left = head + even, end - even
        sums, total, peak = take_keys(mine, keys, values, at, left, sums, total, peak, scale, KEYS, True)
    sums = sums / total[:, None]
    if number < whole:
        place = out + (head + first + row).to(tl.int64)[:, None] * WIDTH + column[None, :]
        tl.store(place, sums, mask=first + row[:, None] < tokens)
    else:
        slot = split * QUERIES + row
        tl.store(sums_of + slot.to(tl.int64)[:, None] * WIDTH + column[None, :], sums)
        tl.store(logs_of + slot, peak + tl.log2(total))


@triton.jit
def merge(
    sums_of, logs_of, out, tokens, whole, parts,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS queries' attention to all keys: that to the parts, weighted by their totals."""
    tile, row, column = tl.program_id(0), tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    sums, total = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS,), tl.float32)
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    for part in range(parts):
        slot = (tile * parts + part) * QUERIES + row
        log = tl.load(logs_of + slot)
        higher = tl.maximum(peak, log)
        shrink, weight = tl.exp2(peak - higher), tl.exp2(log - higher)
        found = tl.load(sums_of + slot.to(tl.int64)[:, None] * WIDTH + column[None, :])
        sums, total, peak = sums * shrink[:, None] + found * weight[:, None], total * shrink + weight, higher
    head, first = (whole + tile) // tl.cdiv(tokens, QUERIES), (whole + tile) % tl.cdiv(tokens, QUERIES) * QUERIES
    place = out + (head * tokens + first + row).to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(place, sums / total[:, None], mask=first + row[:, None] < tokens)


def tile() -> tuple[int, int, int, int, int]:
    """Queries and keys of a tile, warps, tiles of keys that there is room for, and programs that run at once."""
    if knobs.runtime.interpret:
        return 128, 64, 8, 2, 5
    gpu = torch.cuda.get_device_properties()
    shape = {8: (128, 32, 8, 2, 1), 9: (64, 128, 4, 1, 3), 10: (128, 128, 8, 3, 1)}.get(gpu.major, (128, 64, 8, 2, 1))
    return *shape[:4], shape[4] * gpu.multi_processor_count  # registers allow three a multiprocessor on Hopper


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, scale = torch.empty_like(q), width**-0.5 * math.log2(math.e)
    queries, keys, warps, stages, slots = tile()
    sides = (q, queries), (k, keys), (v, keys)
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width]) for x, n in sides]
    tiles, steps = triton.cdiv(tokens, queries) * heads, triton.cdiv(tokens, keys)
    left = tiles % slots  # for the last wave
    share = triton.cdiv(steps, min(slots // max(1, left), steps)) * keys
    parts = triton.cdiv(tokens, share)
    split = left if parts > 1 else 0
    whole, rows = tiles - split, max(1, split * parts * queries)
    sums, logs = (q.new_empty(rows, n, dtype=torch.float32) for n in (width, 1))

    def step() -> Tensor:
        sizes = tokens, whole, parts, share, scale, width, queries, keys
        attend[(whole + split * parts,)](*boxes, out, sums, logs, *sizes, num_warps=warps, num_stages=stages)
        if split:
            merge[split, queries // 16](sums, logs, out, tokens, whole, parts, width, queries, 16)
        return out

    return step
