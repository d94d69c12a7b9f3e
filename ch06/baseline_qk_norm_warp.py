"""A block a row, as for wide rows: four warps meet at a barrier to add up 128 values, one in each thread."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)

WIDTH = 128  # of a head
EPSILON = 1e-6


def inputs(draw: Draw, tokens: int, heads: int) -> Inputs:
    """The queries and keys of some tokens, as one product made them: each head is a row of its own."""
    return {
        "x": draw.normal(tokens, heads, WIDTH, dtype=torch.bfloat16),
        "gain": draw.uniform(WIDTH, low=0.5, high=1.5, dtype=torch.bfloat16),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda x, gain: x * (x.square().mean(dim=-1, keepdim=True) + EPSILON).rsqrt() * gain,
    cost=lambda tokens, heads: Cost(
        read=2 * (tokens * heads + 1) * WIDTH, write=2 * tokens * heads * WIDTH, flops=4 * tokens * heads * WIDTH
    ),
    sizes={
        "bench": {"tokens": 24576, "heads": 40},  # 32 heads of queries and 8 of keys
        "test": {"tokens": 7, "heads": 5},
    },
    tolerance=4e-3,  # rounding to bf16 is off by 1.6e-3
)


def prepare(x: Tensor, gain: Tensor) -> Step:
    normalize, out = load_cuda(__file__, "normalize_heads"), torch.empty_like(x)

    def step() -> Tensor:
        normalize(x, gain, out, x.numel() // WIDTH, WIDTH, EPSILON)
        return out

    return step
