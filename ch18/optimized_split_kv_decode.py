"""The cache is split into as many parts as multiprocessors can read at once; a second kernel merges the parts."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from ch18.baseline_split_kv_decode import workload as workload
from common.models.merge import merge
from common.python.workload import Step

KEYS = 64  # of a tile


@triton.jit
def attend_part(
    q,
    k,
    v,
    sums_of,
    logs_of,
    group,
    keys,
    parts,
    share,
    scale,
    WIDTH: tl.constexpr,
    KEYS: tl.constexpr,
    QUERIES: tl.constexpr,
):
    """The attention of a group's queries to one part of the keys, and the log of its weights' total (base 2)."""
    part, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    query, column = tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    mask = query[:, None] < group
    mine = tl.load(q + (head * group + query[:, None]) * WIDTH + column[None, :], mask=mask, other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    for start in range(part * share, min(part * share + share, keys), KEYS):
        row = start + tl.arange(0, KEYS)
        at, live = (head * keys + row[:, None]) * WIDTH + column[None, :], row < keys
        scores = tl.dot(mine, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        loaded = tl.load(v + at, mask=live[:, None], other=0.0)
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    slot = (head * parts + part) * group + query
    tl.store(sums_of + slot[:, None] * WIDTH + column[None, :], sums / total[:, None], mask=mask)
    tl.store(logs_of + slot, peak + tl.log2(total), mask=query < group)


def share_of(keys: int, pairs: int, tile_bytes: int) -> int:
    """Keys of a program: whole tiles, of which so many that all programs run at once and fill the multiprocessors.

    A program has two tiles of keys and two of values in shared memory, and a little more: on an H200 there is room for
    three on each of 132 multiprocessors.
    """
    if knobs.runtime.interpret:
        slots = 24
    else:
        gpu = torch.cuda.get_device_properties()
        slots = gpu.multi_processor_count * max(1, gpu.shared_memory_per_block_optin // (4 * tile_bytes + 8192))
    parts = max(1, slots // pairs)
    return triton.cdiv(triton.cdiv(keys, parts), KEYS) * KEYS


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    requests, heads, group, width = q.shape
    keys, out = k.shape[2], torch.empty_like(q)
    pairs = requests * heads
    share = share_of(keys, pairs, KEYS * width * k.element_size())
    parts = triton.cdiv(keys, share)
    sums = q.new_empty(pairs, parts, group, width, dtype=torch.float32)
    logs = q.new_empty(pairs, parts, group, dtype=torch.float32)
    scale = width**-0.5 * math.log2(math.e)  # weights are powers of 2
    rows, power = max(16, triton.next_power_of_2(group)), triton.next_power_of_2(parts)
    warps = max(4, power // 32)  # of merge: 128 numbers a thread, or fewer
    tile = {"KEYS": KEYS, "QUERIES": rows, "num_warps": 4, "num_stages": 3}

    def step() -> Tensor:
        attend_part[parts, pairs](q, k, v, sums, logs, group, keys, parts, share, scale, WIDTH=width, **tile)
        merge[group, pairs](sums, logs, out, group, parts, WIDTH=width, PARTS=power, num_warps=warps)
        return out

    return step
