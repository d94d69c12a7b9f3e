"""A dense product of weights of which two in every four are zero: they are read and multiplied like the others."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

PATTERNS = [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]]


def inputs(draw: Draw, tokens: int, outputs: int, columns: int) -> Inputs:
    """Weights of which each four neighbours in a row have kept two, as a pruned model's have."""
    groups = draw.normal(outputs, columns // 4, 4, std=(columns / 2) ** -0.5, dtype=torch.bfloat16)
    kept = torch.tensor(PATTERNS, dtype=groups.dtype, device=groups.device)
    weight = groups.mul_(kept[draw.integers(outputs, columns // 4, high=len(PATTERNS))]).flatten(1)
    return {"x": draw.normal(tokens, columns, dtype=torch.bfloat16), "weight": weight}


def cost(tokens: int, outputs: int, columns: int) -> Cost:
    # Of four weights two numbers and which two: log2(6) bits at least. A sparse product counts as half a dense one.
    weights, rest = outputs * columns * (2 * 16 + 2.585) / 32, 2 * tokens
    flops = tokens * outputs * columns
    return Cost(flops=flops, dtype="bf16", read=weights + rest * columns, write=rest * outputs, items=tokens)


workload = Workload(
    inputs=inputs,
    reference=lambda x, weight: torch.cat([x @ part.double().T for part in weight.split(4096)], dim=1),
    cost=cost,
    sizes={
        # A prompt at the up projection of a 70B Llama.
        "bench": {"tokens": 4096, "outputs": 28672, "columns": 8192},
        "test": {"tokens": 24, "outputs": 96, "columns": 160},
    },
    tolerance=0.01,  # outputs are rounded to bf16, by 0.17% on average
    frozen=("weight",),
    as_drawn=("weight",),
)


def prepare(x: Tensor, weight: Tensor) -> Step:
    return lambda: F.linear(x, weight)
