"""Queries go into the latent space and outputs come out of it: all heads attend to one cache, which is read once."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_mla_absorbed_decode import ROTARY
from ch18.baseline_mla_absorbed_decode import workload as workload
from common.models.merge import merge
from common.python.workload import Step

HEADS, PARTS = 64, 8  # of a program, at most; of a request's cache, a program each


@triton.jit
def attend(
    q, q_rotary, cache, rotary, sums_of, logs_of, heads, keys, share, scale,
    LATENT: tl.constexpr, ROTARY: tl.constexpr, KEYS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """The attention of all heads to a part of a request's cache, and the logs of the weights' totals (base 2)."""
    part, parts, request = tl.program_id(1), tl.num_programs(1), tl.program_id(2).to(tl.int64)
    head, column, turn = tl.program_id(0) * HEADS + tl.arange(0, HEADS), tl.arange(0, LATENT), tl.arange(0, ROTARY)
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


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    (requests, heads, width), (_, keys, latent) = q.shape, cache.shape
    rows = min(HEADS, max(16, triton.next_power_of_2(heads)))
    tile, warps, stages = (64, 8, 2) if rows == HEADS else (32, 4, 3)
    share = triton.cdiv(triton.cdiv(keys, PARTS), tile) * tile
    parts = triton.cdiv(keys, share)
    sums = q.new_empty(requests, heads, parts, latent, dtype=torch.float32)
    logs = q.new_empty(requests, heads, parts, dtype=torch.float32)
    attended = q.new_empty(requests, heads, latent)
    scale = (width + ROTARY) ** -0.5 * math.log2(math.e)  # weights are powers of 2
    grid, power = (triton.cdiv(heads, rows), parts, requests), triton.next_power_of_2(parts)
    sizes = (heads, keys, share, scale, latent, ROTARY, tile, rows)

    def step() -> Tensor:
        absorbed = (q.transpose(0, 1) @ to_keys).transpose(0, 1).contiguous()
        attend[grid](absorbed, q_rotary, cache, rotary, sums, logs, *sizes, num_warps=warps, num_stages=stages)
        merge[1, requests * heads](sums, logs, attended, 1, parts, latent, power, num_warps=4)
        return (attended.transpose(0, 1) @ to_values).transpose(0, 1)

    return step
