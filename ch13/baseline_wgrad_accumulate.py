"""A micro-batch's weight gradient is written in bf16, then read again to be added to the sum in fp32."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, features: int, outputs: int) -> Inputs:
    """A linear layer's input, its output's gradient, and the sum of earlier micro-batches' gradients, of three."""
    return {
        "x": draw.normal(tokens, features, dtype=torch.bfloat16),
        "slope": draw.normal(tokens, outputs, dtype=torch.bfloat16),
        "total": draw.normal(outputs, features, std=(3 * tokens) ** 0.5),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda x, slope, total: total + slope.T @ x,
    cost=lambda tokens, features, outputs: Cost(
        flops=2 * tokens * features * outputs,
        dtype="bf16",
        read=4 * features * outputs + 2 * tokens * (features + outputs),
        write=4 * features * outputs,
        items=tokens,
        unit="tokens",
    ),
    sizes={
        # Gate and up of an 8B Llama: 117 M weights, whose sums are 470 MB. One sequence of 2,048 tokens.
        "bench": {"tokens": 2048, "features": 4096, "outputs": 28672},
        "test": {"tokens": 93, "features": 328, "outputs": 296},
    },
    tolerance=4e-3,  # of a gradient rounded to bf16
    rungs="addmm",
    mutates=("total",),
)


def prepare(x: Tensor, slope: Tensor, total: Tensor) -> Step:
    gradient = x.new_empty(total.shape)

    def step() -> Tensor:
        torch.mm(slope.T, x, out=gradient)
        return total.add_(gradient)  # widens in registers

    return step
