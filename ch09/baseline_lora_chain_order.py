"""The adapter is multiplied out to a matrix of the weight's size and added to it, before the tokens are multiplied."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Step, Workload

SCALE = 2.0  # alpha over rank


def inputs(draw: Draw, tokens: int, width: int, rank: int) -> Inputs:
    return {
        "x": draw.normal(tokens, width, dtype=torch.bfloat16),
        "weight": draw.normal(width, width, std=width**-0.5, dtype=torch.bfloat16),
        "down": draw.normal(rank, width, std=width**-0.5, dtype=torch.bfloat16),
        "up": draw.normal(width, rank, std=0.25 * rank**-0.5, dtype=torch.bfloat16),  # half as much as the weight gives
    }


def cost(tokens: int, width: int, rank: int) -> Cost:
    adapter = 2 * rank * width
    return Cost(
        read=2 * (tokens * width + width * width + adapter),
        write=2 * tokens * width,
        flops=2 * tokens * (width * width + adapter),
        dtype="bf16",
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=lambda x, weight, down, up: x @ weight.T + SCALE * (x @ down.T) @ up.T,
    cost=cost,
    sizes={
        "bench": {"tokens": 512, "width": 8192, "rank": 16},
        "cpu": {"tokens": 64, "width": 1024, "rank": 16},
        "test": {"tokens": 11, "width": 83, "rank": 3},
    },
    tolerance=8e-3,  # up to four roundings to bf16, each by 0.17% on average
)


def prepare(x: Tensor, weight: Tensor, down: Tensor, up: Tensor) -> Step:
    def step() -> Tensor:
        return linear(x, torch.addmm(weight, up, down, alpha=SCALE))

    return step
