"""A program a token: its heads are normed and rotated in registers, and keys and values go straight to their slot."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_qknorm_rope_cache import EPSILON
from ch18.baseline_qknorm_rope_cache import workload as workload
from common.python.workload import Step


@triton.jit
def turn(source, target, gain, cos, sin, heads, EPSILON: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr):
    """All heads of a token: the halves of each, [HEADS, HALF], stay in registers."""
    head, column = tl.arange(0, HEADS), tl.arange(0, HALF)
    at, live = head[:, None] * (2 * HALF) + column[None, :], head[:, None] < heads
    left = tl.load(source + at, mask=live, other=0.0).to(tl.float32)
    right = tl.load(source + at + HALF, mask=live, other=0.0).to(tl.float32)
    squares = tl.sum(left * left, axis=1) + tl.sum(right * right, axis=1)
    shrink = tl.rsqrt(squares / (2 * HALF) + EPSILON)[:, None]
    left = left * shrink * tl.load(gain + column).to(tl.float32)[None, :]
    right = right * shrink * tl.load(gain + HALF + column).to(tl.float32)[None, :]
    tl.store(target + at, left * cos[None, :] - right * sin[None, :], mask=live)
    tl.store(target + at + HALF, right * cos[None, :] + left * sin[None, :], mask=live)


@triton.jit
def norm_turn_store(
    q, k, v, gains, turns, slots, out, keys, values, tokens, heads, kv_heads,
    EPSILON: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    column, width = tl.arange(0, HALF), 2 * HALF
    slot = tl.load(slots + token)
    cos, sin = tl.load(turns + token * HALF + column), tl.load(turns + (tokens + token) * HALF + column)
    turn(q + token * heads * width, out + token * heads * width, gains, cos, sin, heads, EPSILON, HALF, HEADS)
    source, target = token * kv_heads * width, slot * kv_heads * width
    turn(k + source, keys + target, gains + width, cos, sin, kv_heads, EPSILON, HALF, KV_HEADS)
    at = tl.arange(0, 2 * HALF * KV_HEADS)
    live = at < kv_heads * width
    tl.store(values + target + at, tl.load(v + source + at, mask=live), mask=live)


def prepare(q: Tensor, k: Tensor, v: Tensor, gains: Tensor, turns: Tensor, slots: Tensor) -> Step:
    (tokens, heads, width), kv_heads = q.shape, k.shape[1]
    out, keys, values = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    padded = [triton.next_power_of_2(count) for count in (heads, kv_heads)]

    def step() -> tuple[Tensor, ...]:
        places = (q, k, v, gains, turns, slots, out, keys, values)
        norm_turn_store[(tokens,)](*places, tokens, heads, kv_heads, EPSILON, width // 2, *padded, num_warps=4)
        return out, keys, values

    return step
