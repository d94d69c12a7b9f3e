"""An evaluation loop with autograd on: each loss holds on to its graph, and so all activations of all batches stay."""

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import cross_entropy, linear, relu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

BATCHES = 8


def losses(x: Tensor, labels: Tensor, weights: list[Tensor], head: Tensor) -> Tensor:
    """Each example's loss: an MLP, a classifier, cross entropy."""
    for weight in weights:
        x = relu(linear(x, weight), inplace=True)
    return cross_entropy(linear(x, head), labels, reduction="none")


def inputs(draw: Draw, examples: int, width: int, layers: int, classes: int) -> Inputs:
    std = (2 / width) ** 0.5  # keeps the size of activations from layer to layer
    return {
        "x": draw.normal(examples, width, dtype=torch.bfloat16),
        "labels": draw.integers(examples, high=classes),
        "weights": [draw.normal(width, width, std=std, dtype=torch.bfloat16) for _ in range(layers)],
        "head": draw.normal(classes, width, std=width**-0.5, dtype=torch.bfloat16),
    }


def cost(examples: int, width: int, layers: int, classes: int) -> Cost:
    weights = width * (layers * width + classes)
    return Cost(
        flops=2 * examples * weights,
        dtype="bf16",
        read=2 * (examples * width + weights) + 8 * examples,
        write=2 * examples,
        items=examples,
        unit="examples",
    )


workload = Workload(
    inputs=inputs,
    reference=losses,
    cost=cost,
    sizes={
        # 67 MB of activations a layer and batch
        "bench": {"examples": 65536, "width": 4096, "layers": 6, "classes": 1024},
        "test": {"examples": 43, "width": 29, "layers": 3, "classes": 17},
    },
    tolerance=1e-2,  # bf16 rounds (2e-3) after each layer, and the loss
    goal="memory",
)


def prepare(x: Tensor, labels: Tensor, weights: list[Tensor], head: Tensor) -> Step:
    parameters: list[Tensor] = [Parameter(weight) for weight in weights]  # as a module holds them
    classifier = Parameter(head)

    def step() -> Tensor:
        found = []
        for batch, of_batch in zip(x.chunk(BATCHES), labels.chunk(BATCHES)):
            found.append(losses(batch, of_batch, parameters, classifier))
        return torch.cat(found).detach()

    return step
