"""Queries go into the latent space and outputs come out of it: all heads attend to one cache, which is read once."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_mla_absorbed_decode import ROTARY
from ch18.baseline_mla_absorbed_decode import workload as workload
from common.python.workload import Step

KEYS, PARTS = 32, 8  # of a tile; of a request's cache, a program each


@triton.jit
def attend(
    q, q_rotary, cache, rotary, sums_of, logs_of, heads, keys, share, scale,
    LATENT: tl.constexpr, ROTARY: tl.constexpr, KEYS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """The attention of all heads to a part of a request's cache, and the logs of the weights' totals (base 2)."""
    part, parts, request = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    head, column, turn = tl.arange(0, HEADS), tl.arange(0, LATENT), tl.arange(0, ROTARY)
    mask, query = head < heads, request * heads + head
    mine = tl.load(q + query[:, None] * LATENT + column[None, :], mask=mask[:, None], other=0.0)
    turned = tl.load(q_rotary + query[:, None] * ROTARY + turn[None, :], mask=mask[:, None], other=0.0)
    sums = tl.zeros((HEADS, LATENT), tl.float32)
    total, peak = tl.zeros((HEADS,), tl.float32), tl.full((HEADS,), float("-inf"), tl.float32)
    for start in range(part * share, tl.minimum(part * share + share, keys), KEYS):
        key = start + tl.arange(0, KEYS)
        live, row = key < keys, request * keys + key
        latent = tl.load(cache + row[:, None] * LATENT + column[None, :], mask=live[:, None], other=0.0)
        own = tl.load(rotary + row[:, None] * ROTARY + turn[None, :], mask=live[:, None], other=0.0)
        scores = tl.dot(turned, own.T, tl.dot(mine, latent.T)) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        sums = tl.dot(weights.to(latent.dtype), latent, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    slot = query * parts + part
    tl.store(sums_of + slot[:, None] * LATENT + column[None, :], sums / total[:, None], mask=mask[:, None])
    tl.store(logs_of + slot, peak + tl.log2(total), mask=mask)


@triton.jit
def merge(sums_of, logs_of, out, parts, LATENT: tl.constexpr, PARTS: tl.constexpr):
    """The attention of one query to all keys: that to the parts, weighted by their totals."""
    query, part, column = tl.program_id(0).to(tl.int64), tl.arange(0, PARTS), tl.arange(0, LATENT)
    slot, live = query * parts + part, part < parts
    logs = tl.load(logs_of + slot, mask=live, other=float("-inf"))
    weights = tl.exp2(logs - tl.max(logs, axis=0))
    sums = tl.load(sums_of + slot[:, None] * LATENT + column[None, :], mask=live[:, None], other=0.0)
    tl.store(out + query * LATENT + column, tl.sum(sums * weights[:, None], axis=0) / tl.sum(weights, axis=0))


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    (requests, heads, width), (_, keys, latent) = q.shape, cache.shape
    share = triton.cdiv(triton.cdiv(keys, PARTS), KEYS) * KEYS
    parts = triton.cdiv(keys, share)
    sums = q.new_empty(requests, heads, parts, latent, dtype=torch.float32)
    logs = q.new_empty(requests, heads, parts, dtype=torch.float32)
    attended = q.new_empty(requests, heads, latent)
    scale = (width + ROTARY) ** -0.5 * math.log2(math.e)  # weights are powers of 2
    rows, power = max(16, triton.next_power_of_2(heads)), triton.next_power_of_2(parts)
    sizes = (heads, keys, share, scale, latent, ROTARY, KEYS, rows)

    def step() -> Tensor:
        absorbed = (q.transpose(0, 1) @ to_keys).transpose(0, 1).contiguous()
        attend[parts, requests](absorbed, q_rotary, cache, rotary, sums, logs, *sizes, num_warps=4, num_stages=3)
        merge[(requests * heads,)](sums, logs, attended, parts, latent, power, num_warps=4)
        return (attended.transpose(0, 1) @ to_values).transpose(0, 1)

    return step
