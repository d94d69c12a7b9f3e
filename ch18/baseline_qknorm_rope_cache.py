"""Norm, rotation and the write into the cache are passes of their own, each of which reads and writes memory."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

EPSILON = 1e-6


def inputs(draw: Draw, tokens: int, heads: int, kv_heads: int, width: int, dtype: str) -> Inputs:
    """A chunk of a prompt behind its projections, the angles of its positions, and where its keys and values go."""
    element = getattr(torch, dtype)
    speeds = 10_000.0 ** (-torch.arange(0, width, 2, device=draw.device) / width)
    angles = torch.arange(tokens, device=draw.device)[:, None] * speeds
    return {
        "q": draw.normal(tokens, heads, width, dtype=element),
        "k": draw.normal(tokens, kv_heads, width, dtype=element),
        "v": draw.normal(tokens, kv_heads, width, dtype=element),
        "gains": draw.uniform(2, width, low=0.5, high=1.5, dtype=element),  # of queries and of keys
        "turns": torch.stack([angles.cos(), angles.sin()]),  # (2, tokens, width / 2), fp32
        "slots": draw.permutation(tokens),
    }


def turned(x: Tensor, gain: Tensor, turns: Tensor) -> Tensor:
    """Heads divided by their root mean square, times the gain, then rotated: half of a head with the other half."""
    normed = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPSILON) * gain
    left, right = normed.chunk(2, dim=-1)
    cos, sin = turns[:, :, None].to(x.dtype)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def reference(q: Tensor, k: Tensor, v: Tensor, gains: Tensor, turns: Tensor, slots: Tensor) -> tuple[Tensor, ...]:
    keys, values = torch.empty_like(k), torch.empty_like(v)
    keys[slots], values[slots] = turned(k, gains[1], turns), v
    return turned(q, gains[0], turns), keys, values


def cost(tokens: int, heads: int, kv_heads: int, width: int, dtype: str) -> Cost:
    """Queries, keys and values in and out, 2 bytes a number; the angles and the slots in."""
    moved = 2 * tokens * width * (heads + 2 * kv_heads)
    return Cost(read=moved + 4 * tokens * width + 8 * tokens, write=moved, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One layer of an 8B model: 403 MB in and out.
        "bench": {"tokens": 16384, "heads": 32, "kv_heads": 8, "width": 128, "dtype": "bfloat16"},
        "test": {"tokens": 37, "heads": 6, "kv_heads": 3, "width": 64, "dtype": "float32"},
    },
    tolerance=1e-2,  # each pass rounds to bf16, by 0.17% on average
    frozen=("turns",),
)


def prepare(q: Tensor, k: Tensor, v: Tensor, gains: Tensor, turns: Tensor, slots: Tensor) -> Step:
    keys, values = torch.empty_like(k), torch.empty_like(v)

    def step() -> tuple[Tensor, ...]:
        keys.index_copy_(0, slots, turned(k, gains[1], turns))
        values.index_copy_(0, slots, v)
        return turned(q, gains[0], turns), keys, values

    return step
