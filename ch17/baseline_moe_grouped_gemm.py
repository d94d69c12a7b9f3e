"""A loop over experts: find the expert's tokens, wait for their number, gather, three products, add the rows back."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

SKEW = 0.5  # standard deviation of the experts' popularity, in those of a token's own preferences


def inputs(draw: Draw, tokens: int, experts: int, chosen: int, width: int, wide: int, dtype: str) -> Inputs:
    """Tokens, the experts that each one goes to, how much each counts, and the experts' SwiGLU weights [out, in]."""
    element = getattr(torch, dtype)
    scores = draw.normal(tokens, experts) + draw.normal(experts, std=SKEW)
    best, ids = scores.topk(chosen, dim=1)
    return {
        "x": draw.normal(tokens, width, dtype=element),
        "ids": ids,
        "shares": best.softmax(dim=1).to(element),
        "gate_up": draw.normal(experts, 2 * wide, width, std=width**-0.5, dtype=element),
        "down": draw.normal(experts, width, wide, std=wide**-0.5, dtype=element),
    }


def swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def each_expert(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for expert in range(len(gate_up)):
        token, slot = torch.where(ids == expert)
        hidden = swiglu(F.linear(x[token], gate_up[expert]))
        out.index_add_(0, token, F.linear(hidden, down[expert]) * shares[token, slot, None])
    return out


def cost(tokens: int, experts: int, chosen: int, width: int, wide: int, dtype: str) -> Cost:
    return Cost(
        flops=2 * tokens * chosen * 3 * wide * width,
        dtype="bf16",
        # weights and tokens in, tokens out; an id of 8 bytes and a share of 2 for each choice
        read=2 * (3 * experts * wide * width + tokens * width) + 10 * tokens * chosen,
        write=2 * tokens * width,
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=each_expert,
    cost=cost,
    sizes={
        # A layer of DeepSeekMoE-16B, without its two shared experts: 1.1 GB of weights.
        "bench": {"tokens": 16384, "experts": 64, "chosen": 6, "width": 2048, "wide": 1408, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; of 13 experts some may have no token
        "test": {"tokens": 37, "experts": 13, "chosen": 2, "width": 72, "wide": 88, "dtype": "float16"},
    },
    # bf16 rounds hidden states, products, shares and sums: 0.5% together, one of 34 million sums by 12% of their rms
    tolerance=0.015,
    frozen=("gate_up", "down"),
)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    def step() -> Tensor:
        return each_expert(x, ids, shares, gate_up, down)

    return step
