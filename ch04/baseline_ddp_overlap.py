"""The whole backward pass first, then the gradients travel while the arithmetic units wait."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, rows: int, width: int, layers: int) -> Inputs:
    """Every rank has the same weights and a batch of its own."""
    weights = [draw.shared.normal(width, width, std=width**-0.5, dtype=torch.bfloat16) for _ in range(layers)]
    return {"x": draw.normal(rows, width, dtype=torch.bfloat16), "weights": weights}


def loss_of(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """An MLP whose outputs are to be small."""
    for weight in weights:
        # Bounded, odd and smooth: with silu some gradients are 30 times their rms, and a single rounding of one shows.
        x = torch.tanh(linear(x, weight))
    return x.square().sum(dim=1).mean()


def reference(rank: int, x: list[Tensor], weights: list[list[Tensor]]) -> tuple[Tensor, ...]:
    """The mean of the ranks' gradients is the gradient of all rows: every rank has as many."""
    leaves = [weight.requires_grad_() for weight in weights[rank]]
    return torch.autograd.grad(loss_of(torch.cat(x), leaves), leaves)


def cost(rows: int, width: int, layers: int) -> Cost:
    product = 2 * rows * width * width
    return Cost(
        flops=(3 * layers - 1) * product,  # forward, and two products backward; the batch needs no gradient
        dtype="bf16",
        read=2 * layers * width * width,
        write=2 * layers * width * width,
        nvlink_bytes=2 * layers * width * width,  # 2(n - 1)/n of the gradients: all of them, for two ranks
        items=rows,
        unit="rows",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={"bench": {"rows": 2048, "width": 8192, "layers": 6}, "test": {"rows": 19, "width": 67, "layers": 3}},
    tolerance=0.03,  # bfloat16 rounds each of the layers' activations and gradients to 8 bits
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    ranks, parameters = dist.get_world_size(), [Parameter(weight) for weight in weights]

    def step() -> tuple[Tensor, ...]:
        gradients = torch.autograd.grad(loss_of(x, parameters), parameters)
        for gradient in gradients:
            dist.all_reduce(gradient)
        torch._foreach_div_(gradients, ranks)
        return gradients

    return step
