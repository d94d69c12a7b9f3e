"""Sixty small kernels are launched one by one: the GPU finishes each before the CPU has prepared the next."""

from torch import Tensor
from torch.nn.functional import layer_norm, linear, relu

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def network(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """Three kernels a layer: linear, normalise, ReLU."""
    for weight, bias in zip(weights, biases):
        x = relu(layer_norm(linear(x, weight, bias), bias.shape))
    return x


def inputs(draw: Draw, batch: int, width: int, layers: int) -> Inputs:
    return {
        "x": draw.normal(batch, width),
        "weights": [draw.normal(width, width, std=width**-0.5) for _ in range(layers)],
        "biases": [draw.normal(width) for _ in range(layers)],
    }


workload = Workload(
    inputs=inputs,
    reference=network,
    # No phases: weights bound each layer, so the layers' times add up to this; a barrier between them has no peak.
    cost=lambda batch, width, layers: Cost(
        read=4 * (layers * (width + 1) * width + batch * width),
        write=4 * batch * width,
        flops=2 * batch * layers * width * width,
        dtype="fp32",
        launches=1,  # all layers could live in one kernel
    ),
    sizes={"bench": {"batch": 8, "width": 256, "layers": 20}, "test": {"batch": 3, "width": 29, "layers": 4}},
    tolerance=1e-5,
    clock="end_to_end",
)


def prepare(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Step:
    def step() -> Tensor:
        return network(x, weights, biases)

    return step
