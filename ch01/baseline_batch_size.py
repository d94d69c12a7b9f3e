"""256 requests pass in eight batches of 32: every weight is read from memory eight times, for 32 rows each time."""

import torch
from torch import Tensor
from torch.nn.functional import linear, relu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

BATCHES = 8


def mlp(requests: Tensor, weights: list[Tensor]) -> Tensor:
    """Linear layers with ReLU between them."""
    hidden = requests
    for weight in weights[:-1]:
        hidden = relu(linear(hidden, weight))
    return linear(hidden, weights[-1])


def inputs(draw: Draw, batch: int, width: int, layers: int) -> Inputs:
    std = (2 / width) ** 0.5  # keeps the size of activations from layer to layer
    return {
        "requests": draw.normal(batch, width, dtype=torch.bfloat16),
        "weights": [draw.normal(width, width, std=std, dtype=torch.bfloat16) for _ in range(layers)],
    }


workload = Workload(
    inputs=inputs,
    reference=mlp,
    cost=lambda batch, width, layers: Cost(
        read=2 * (layers * width * width + batch * width),
        write=2 * batch * width,
        flops=2 * batch * layers * width * width,
        dtype="bf16",
        items=batch,
        unit="requests",
    ),
    sizes={
        "bench": {"batch": 256, "width": 8192, "layers": 8},
        "cpu": {"batch": 16, "width": 1024, "layers": 8},
        "test": {"batch": 11, "width": 37, "layers": 3},
    },
    tolerance=1e-2,  # activations are rounded to bf16 (2e-3) after each of eight layers
    frozen=("weights",),
)


def prepare(requests: Tensor, weights: list[Tensor]) -> Step:
    def step() -> Tensor:
        return torch.cat([mlp(batch, weights) for batch in requests.chunk(BATCHES)])

    return step
