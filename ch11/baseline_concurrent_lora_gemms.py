"""Adapters of different rank, one after another: a small product fills a part of the GPU, and the next one waits."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RANKS = [16, 32, 64, 128, 256, 48, 96]  # of the adapters, in turn


def inputs(draw: Draw, adapters: int, tokens: int, width: int) -> Inputs:
    """Each adapter has a batch of its own; `down` (width, rank) and `up` (rank, width) are its weights."""
    ranks = [RANKS[index % len(RANKS)] for index in range(adapters)]
    return {
        "x": draw.normal(adapters, tokens, width, dtype=torch.bfloat16),
        "down": [draw.normal(width, rank, std=width**-0.5, dtype=torch.bfloat16) for rank in ranks],
        "up": [draw.normal(rank, width, std=rank**-0.5, dtype=torch.bfloat16) for rank in ranks],
    }


def reference(x: Tensor, down: list[Tensor], up: list[Tensor]) -> Tensor:
    return torch.stack([batch @ a @ b for batch, a, b in zip(x, down, up)])


def cost(adapters: int, tokens: int, width: int) -> Cost:
    ranks = sum(RANKS[index % len(RANKS)] for index in range(adapters))
    return Cost(
        flops=4 * tokens * width * ranks,
        dtype="bf16",
        read=2 * width * (adapters * tokens + 2 * ranks),
        write=2 * adapters * tokens * width,
        items=adapters * tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 268 MB in and as much out; an adapter's first product has 4 to 8 tiles of 128 x 128 for 132 multiprocessors
        "bench": {"adapters": 32, "tokens": 512, "width": 8192},
        "test": {"adapters": 11, "tokens": 13, "width": 37},
    },
    tolerance=2e-2,  # bf16 rounds (2e-3) between the two products and after them
    frozen=("down", "up"),
    rungs="one_each",
)


def prepare(x: Tensor, down: list[Tensor], up: list[Tensor]) -> Step:
    out = torch.empty_like(x)

    def step() -> Tensor:
        for batch, a, b, target in zip(x, down, up, out):
            torch.mm(batch @ a, b, out=target)
        return out

    return step
