"""Each matrix is orthogonalised by itself, in fifteen products, most of which are too small to fill the GPU."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

# As in torch.optim.Muon, but for the rate: the update is as large as the weights, and shows where bf16 is compared.
COEFFICIENTS, ROUNDS, MOMENTUM, DECAY, RATE = (3.4445, -4.7750, 2.0315), 5, 0.95, 0.1, 1.0


def shapes(layers: int, width: int, wide: int) -> list[tuple[int, int]]:
    """Of each layer: queries, keys, values, output, up, down."""
    return layers * [*4 * [(width, width)], (wide, width), (width, wide)]


def inputs(draw: Draw, layers: int, width: int, wide: int, dtype: str) -> Inputs:
    """Weights, and gradients and momenta of unit noise: a step's size does not depend on theirs."""
    element, of = getattr(torch, dtype), shapes(layers, width, wide)
    return {
        "weights": [draw.normal(*shape, std=width**-0.5, dtype=element) for shape in of],
        "gradients": [draw.normal(*shape, dtype=element) for shape in of],
        "momenta": [draw.normal(*shape, dtype=element) for shape in of],
    }


def rate(shape: tuple[int, ...]) -> float:
    return RATE * max(1, shape[0] / shape[1]) ** 0.5


def reference(weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> tuple[Tensor, ...]:
    first, second, third = COEFFICIENTS
    for weight, gradient, momentum in zip(weights, gradients, momenta):
        momentum.mul_(MOMENTUM).add_(gradient, alpha=1 - MOMENTUM)
        x = gradient * (1 - MOMENTUM) + momentum * MOMENTUM
        wide = x / x.norm() if len(x) <= x.shape[1] else x.T / x.norm()
        for _ in range(ROUNDS):
            gram = wide @ wide.T
            wide = first * wide + (second * gram + third * gram @ gram) @ wide
        step = wide if wide.shape == weight.shape else wide.T
        weight.mul_(1 - RATE * DECAY).sub_(step, alpha=rate(weight.shape))
    return *weights, *momenta


def cost(layers: int, width: int, wide: int, dtype: str) -> Cost:
    """Five rounds on the Gram matrix G of the shorter side n: G' = p(G) G p(G), Q' = p(G) Q, and at last Q X.

    Of 17 symmetric products one half is enough, n ** 3 FLOPs each, and n * n * m for G itself; Q X has 2 * n * n * m.
    """
    flops = sum(17 * min(shape) ** 3 + 3 * min(shape) ** 2 * max(shape) for shape in shapes(layers, width, wide))
    size = getattr(torch, dtype).itemsize * sum(rows * columns for rows, columns in shapes(layers, width, wide))
    return Cost(flops=flops, dtype="bf16", read=3 * size, write=2 * size)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"layers": 8, "width": 1024, "wide": 4096, "dtype": "bfloat16"},  # 100 million weights
        "cpu": {"layers": 4, "width": 64, "wide": 256, "dtype": "float32"},
        "test": {"layers": 2, "width": 23, "wide": 37, "dtype": "float32"},
    },
    tolerance=2e-2,  # the rounds do not converge, so what bf16 rounds in one of them grows in the next
    mutates=("weights", "momenta"),
)


def prepare(weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> Step:
    first, second, third = COEFFICIENTS

    def orthogonal(x: Tensor) -> Tensor:
        x = x / x.norm()
        for _ in range(ROUNDS):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=second, alpha=third), x, beta=first)
        return x

    def step() -> tuple[Tensor, ...]:
        for weight, gradient, momentum in zip(weights, gradients, momenta):
            momentum.lerp_(gradient, 1 - MOMENTUM)
            update = gradient.lerp(momentum, MOMENTUM)
            update = orthogonal(update.T).T if len(update) > update.shape[1] else orthogonal(update)
            weight.mul_(1 - RATE * DECAY).sub_(update, alpha=rate(weight.shape))
        return *weights, *momenta

    return step
