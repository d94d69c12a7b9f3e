"""A tile of tokens and channels is loaded four times, once a tap, each time shifted by a token."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

TOKENS, CHANNELS = 32, 128  # of a tile


def inputs(draw: Draw, batch: int, tokens: int, channels: int) -> Inputs:
    return {
        "x": draw.normal(batch, tokens, channels, dtype=torch.bfloat16),
        "weight": draw.normal(channels, 4, std=0.5, dtype=torch.bfloat16),  # of the three tokens before, and this one
        "bias": draw.normal(channels, dtype=torch.bfloat16),
    }


def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    padded, tokens = F.pad(x, (0, 0, 3, 0)), x.shape[1]
    return F.silu(sum(padded[:, tap : tap + tokens] * weight[:, tap] for tap in range(4)) + bias)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda batch, tokens, channels: Cost(read=2 * batch * tokens * channels, write=2 * batch * tokens * channels),
    sizes={
        "bench": {"batch": 4, "tokens": 16384, "channels": 4096},
        "test": {"batch": 2, "tokens": 133, "channels": 203},
    },
    tolerance=5e-3,  # rounding to bf16 is off by 1.7e-3, and by 3.3e-3 in the interpreter, which truncates
)


@triton.jit
def silu(half, FAST: tl.constexpr):
    """y sigmoid(y) of y = 2 `half`, by the hyperbolic tangent: if FAST one instruction, where 1 / (1 + exp) is 12."""
    if FAST:
        tanh = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [half], tl.float32, is_pure=True, pack=1)
    else:  # Triton's interpreter runs no assembly
        tanh = 2.0 * tl.sigmoid(2.0 * half) - 1.0
    return half + half * tanh


@triton.jit
def convolve(x, weight, bias, out, tokens, channels, TOKENS: tl.constexpr, CHANNELS: tl.constexpr, FAST: tl.constexpr):
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    start = tl.program_id(2).to(tl.int64) * tokens * channels
    live = channel < channels
    total = tl.zeros((TOKENS, CHANNELS), tl.float32)
    for tap in tl.static_range(4):
        source = token + tap - 3
        mask = ((source >= 0) & (source < tokens))[:, None] & live[None, :]
        shifted = tl.load(x + start + source[:, None] * channels + channel[None, :], mask=mask, other=0.0)
        factor = tl.load(weight + channel * 4 + tap, mask=live, other=0.0)
        total += shifted.to(tl.float32) * factor.to(tl.float32)[None, :]
    total += tl.load(bias + channel, mask=live, other=0.0).to(tl.float32)[None, :]
    place = out + start + token[:, None] * channels + channel[None, :]
    tl.store(place, silu(0.5 * total, FAST).to(tl.bfloat16), mask=(token < tokens)[:, None] & live[None, :])


def prepare(x: Tensor, weight: Tensor, bias: Tensor) -> Step:
    batch, tokens, channels = x.shape
    out, fast = torch.empty_like(x), not triton.knobs.runtime.interpret
    grid = triton.cdiv(channels, CHANNELS), triton.cdiv(tokens, TOKENS), batch

    def step() -> Tensor:
        convolve[grid](x, weight, bias, out, tokens, channels, TOKENS, CHANNELS, fast, num_warps=4)
        return out

    return step
