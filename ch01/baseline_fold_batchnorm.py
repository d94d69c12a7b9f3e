"""Convolution, batch norm, ReLU: three kernels, and two of them read and write every activation for one operation."""

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, relu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

EPSILON = 1e-5  # batch norm's own


def inputs(draw: Draw, batch: int, side: int, channels: int, outputs: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "x": draw.normal(batch, side, side, channels, dtype=element).permute(0, 3, 1, 2),  # channels last
        "weight": draw.normal(outputs, channels, 1, 1, std=channels**-0.5, dtype=element),
        "gamma": draw.uniform(outputs, low=0.5, high=1.5),
        "beta": draw.normal(outputs),
        "mean": draw.normal(outputs),
        "var": draw.uniform(outputs, low=0.5, high=2.0),
    }


def layer(x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """The 1 x 1 convolution that widens a ResNet bottleneck, as it is evaluated: batch norm has fixed statistics."""
    return relu(batch_norm(conv2d(x, weight), mean, var, gamma, beta, eps=EPSILON))


def cost(batch: int, side: int, channels: int, outputs: int, dtype: str) -> Cost:
    pixels = batch * side**2
    return Cost(
        read=2 * channels * (pixels + outputs),
        write=2 * pixels * outputs,
        flops=2 * pixels * channels * outputs,
        dtype="bf16",
        items=batch,
        unit="images",
    )


workload = Workload(
    inputs=inputs,
    reference=layer,
    cost=cost,
    sizes={
        # of ResNet-50's first stage: 206 MB come in and 822 MB go out
        "bench": {"batch": 512, "side": 56, "channels": 64, "outputs": 256, "dtype": "bfloat16"},
        "cpu": {"batch": 8, "side": 28, "channels": 32, "outputs": 128, "dtype": "float32"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"batch": 3, "side": 3, "channels": 11, "outputs": 211, "dtype": "float16"},
    },
    tolerance=1e-2,  # bf16 rounds (2e-3) the product, the norm and its output, or the folded weight, bias and output
    frozen=("weight", "gamma", "beta", "mean", "var"),
)


def prepare(x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Step:
    def step() -> Tensor:
        return layer(x, weight, gamma, beta, mean, var)

    return step


def fold(weight: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one linear operator that convolution and batch norm are together."""
    scale = gamma * (var + EPSILON).rsqrt()
    return (weight * scale.view(-1, 1, 1, 1)).to(weight.dtype), (beta - mean * scale).to(weight.dtype)
