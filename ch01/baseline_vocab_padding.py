"""A head of 50,257 columns: rows of bf16 logits begin between 16-byte borders, where fast kernels cannot store."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, width: int, vocabulary: int) -> Inputs:
    return {
        "hidden": draw.normal(tokens, width, dtype=torch.bfloat16),
        "head": draw.normal(vocabulary, width, std=width**-0.5, dtype=torch.bfloat16),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda hidden, head: hidden @ head.T,
    cost=lambda tokens, width, vocabulary: Cost(
        read=2 * width * (tokens + vocabulary),
        write=2 * tokens * vocabulary,
        flops=2 * tokens * width * vocabulary,
        dtype="bf16",
        items=tokens,
        unit="tokens",
    ),
    # GPT-2 XL: 1,600 wide, and a vocabulary of 50,257
    sizes={
        "bench": {"tokens": 8192, "width": 1600, "vocabulary": 50257},
        "test": {"tokens": 29, "width": 48, "vocabulary": 131},
    },
    tolerance=5e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
    frozen=("head",),
)


def prepare(hidden: Tensor, head: Tensor) -> Step:
    def step() -> Tensor:
        return linear(hidden, head)

    return step
