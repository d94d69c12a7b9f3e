"""One kernel computes on the prefix, as rows of one product, while it loads own keys: neither waits for the other."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_shared_prefix_cascade import workload as workload
from common.python.workload import Step

PARTS = 4  # of the prefix: with 64 tiles of queries all programs have a place at once, two on each multiprocessor
TILE = {"ROWS": 64, "KEYS": 64, "OWN": 32, "num_warps": 4, "num_stages": 3}


@triton.jit
def update(query, k, v, at, live, scale, sums, total, peak):
    """Takes the keys at `at` into a running softmax."""
    scores = tl.dot(query, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
    scores = tl.where(live[None, :], scores, -1e30)
    higher = tl.maximum(peak, tl.max(scores, axis=1))
    weights, shrink = tl.where(live[None, :], tl.exp2(scores - higher[:, None]), 0.0), tl.exp2(peak - higher)
    loaded = tl.load(v + at, mask=live[:, None], other=0.0)
    sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
    return sums, total * shrink + tl.sum(weights, axis=1), higher


@triton.jit
def attend(
    q, common_k, common_v, own_k, own_v, sums_of, logs_of, requests, heads, group, prefix, own, share, units, turns,
    slots, scale, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, OWN: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """A tile of a head's queries with a part of the prefix; meanwhile `units` requests' heads with their own keys."""
    tile, part, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    number = (head * tl.num_programs(1) + part) * tl.num_programs(0) + tile
    row, column, few = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, FEW)
    asked = row < requests * group
    query = (row // group * heads + head) * group + row % group
    mine = tl.load(q + query[:, None] * WIDTH + column[None, :], mask=asked[:, None], other=0.0)
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    total, peak = tl.zeros((ROWS,), tl.float32), tl.full((ROWS,), -1e30, tl.float32)
    k, v = common_k + head.to(tl.int64) * prefix * WIDTH, common_v + head.to(tl.int64) * prefix * WIDTH
    end = tl.minimum(part * share + share, prefix)
    for unit in range(units):
        pair = number * units + unit
        present = pair < requests * heads
        its = pair * group + few
        turned = tl.load(q + its[:, None] * WIDTH + column[None, :], mask=(few < group)[:, None] & present, other=0.0)
        own_sums = tl.zeros((FEW, WIDTH), tl.float32)
        own_total, own_peak = tl.zeros((FEW,), tl.float32), tl.full((FEW,), -1e30, tl.float32)
        ok, ov = own_k + pair.to(tl.int64) * own * WIDTH, own_v + pair.to(tl.int64) * own * WIDTH
        for turn in range(turns):
            key = part * share + (unit * turns + turn) * KEYS + tl.arange(0, KEYS)
            at, live = key[:, None] * WIDTH + column[None, :], key < end
            sums, total, peak = update(mine, k, v, at, live, scale, sums, total, peak)
            key = turn * OWN + tl.arange(0, OWN)
            at, live = key[:, None] * WIDTH + column[None, :], (key < own) & present
            own_sums, own_total, own_peak = update(turned, ok, ov, at, live, scale, own_sums, own_total, own_peak)
        slot, seen = its * slots + slots - 1, (few < group) & present
        tl.store(sums_of + slot[:, None] * WIDTH + column[None, :], own_sums / own_total[:, None], mask=seen[:, None])
        tl.store(logs_of + slot, own_peak + tl.log2(own_total), mask=seen)
    slot = query * slots + part
    tl.store(sums_of + slot[:, None] * WIDTH + column[None, :], sums / total[:, None], mask=asked[:, None])
    tl.store(logs_of + slot, peak + tl.log2(total), mask=asked)


@triton.jit
def merge(sums_of, logs_of, out, slots, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """The attention of one query to all keys: that to the parts, weighted by their totals."""
    query, part, column = tl.program_id(0).to(tl.int64), tl.arange(0, PARTS), tl.arange(0, WIDTH)
    slot, live = query * slots + part, part < slots
    logs = tl.load(logs_of + slot, mask=live, other=float("-inf"))
    weights = tl.exp2(logs - tl.max(logs, axis=0))
    sums = tl.load(sums_of + slot[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    tl.store(out + query * WIDTH + column, tl.sum(sums * weights[:, None], axis=0) / tl.sum(weights, axis=0))


def prepare(q: Tensor, common_k: Tensor, common_v: Tensor, own_k: Tensor, own_v: Tensor) -> Step:
    (requests, heads, group, width), out = q.shape, torch.empty_like(q)
    prefix, own = common_k.shape[1], own_k.shape[2]
    share = triton.cdiv(triton.cdiv(prefix, PARTS), TILE["KEYS"]) * TILE["KEYS"]
    parts, tiles = triton.cdiv(prefix, share), triton.cdiv(requests * group, TILE["ROWS"])
    units = triton.cdiv(requests, tiles * parts)  # requests' heads of a program
    turns = max(triton.cdiv(own, TILE["OWN"]), triton.cdiv(share // TILE["KEYS"], units))
    sums = q.new_empty(requests * heads * group, parts + 1, width, dtype=torch.float32)
    logs = q.new_empty(requests * heads * group, parts + 1, dtype=torch.float32)
    scale = width**-0.5 * math.log2(math.e)  # weights are powers of 2
    few = max(16, triton.next_power_of_2(group))  # the least that a product takes
    sizes = requests, heads, group, prefix, own, share, units, turns, parts + 1, scale

    def step() -> Tensor:
        places = q, common_k, common_v, own_k, own_v, sums, logs
        attend[tiles, parts, heads](*places, *sizes, WIDTH=width, FEW=few, **TILE)
        merge[(len(sums),)](
            sums, logs, out, parts + 1, WIDTH=width, PARTS=triton.next_power_of_2(parts + 1), num_warps=1
        )
        return out

    return step
