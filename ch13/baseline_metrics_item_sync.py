"""Loss, accuracy and gradient norm are read by .item() in each training step: three waits, and then an empty queue."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE, LIMIT = 2.0, 0.1  # of gradient descent, and of the gradients' norm


def inputs(draw: Draw, steps: int, tokens: int, width: int, layers: int, classes: int) -> Inputs:
    """Tokens near their class's signs, by far, so that rounding changes no accuracy; three in ten labels are wrong."""
    signs = draw.integers(classes, width, high=2).mul_(2).sub_(1).to(torch.bfloat16)
    planted, other = (draw.integers(steps, tokens, high=classes) for _ in range(2))
    std = 0.1 * width**-0.5
    return {
        "x": signs[planted] + draw.normal(steps, tokens, width, std=0.5, dtype=torch.bfloat16),
        "labels": torch.where(draw.uniform(steps, tokens) < 0.3, other, planted),
        "weights": [
            *(draw.normal(width, width, std=std, dtype=torch.bfloat16) for _ in range(layers)),
            signs * (8 / width),
        ],
    }


def update(x: Tensor, labels: Tensor, weights: list[Tensor], note: Callable[[Tensor], object]) -> None:
    """A step of clipped gradient descent, in place; `note` gets each figure as soon as it is enqueued."""
    leaves = [weight.requires_grad_() for weight in weights]
    for weight in leaves[:-1]:
        x = x + silu(linear(x, weight))
    logits = linear(x, leaves[-1])
    loss = cross_entropy(logits.to(torch.promote_types(x.dtype, torch.float32)), labels)
    note(loss.detach())
    note((logits.argmax(-1) == labels).float().mean())
    gradients = torch.autograd.grad(loss, leaves)
    norm = torch.stack(torch._foreach_norm(gradients, dtype=loss.dtype)).norm()
    note(norm)
    with torch.no_grad():
        torch._foreach_mul_(gradients, (LIMIT / norm.clamp(min=LIMIT)).to(x.dtype))
        torch._foreach_add_(leaves, gradients, alpha=-RATE)


def reference(x: Tensor, labels: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    figures: list[Tensor] = []
    for batch, of_batch in zip(x, labels):
        update(batch, of_batch, weights, figures.append)
    return torch.stack(figures), *weights


def cost(steps: int, tokens: int, width: int, layers: int, classes: int) -> Cost:
    """Products forward and back, but for the gradient of what comes in; tokens and weights in, weights out."""
    first, weights = width**2, width * (layers * width + classes)
    flops = 2 * steps * tokens * (3 * weights - first)
    read = steps * tokens * (2 * width + 8) + 2 * weights
    return Cost(flops=flops, dtype="bf16", read=read, write=2 * weights, items=steps, unit="training steps")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A training step takes the GPU some 0.85 ms and the CPU 0.6 to launch: without waits the CPU stays ahead.
        "bench": {"steps": 8, "tokens": 4096, "width": 1024, "layers": 8, "classes": 4096},
        "test": {"steps": 5, "tokens": 29, "width": 136, "layers": 2, "classes": 11},
    },
    tolerance=2e-2,  # bf16 rounds at 0.2%, after each layer and at each update
    mutates=("weights",),
    clock="end_to_end",
)


def prepare(x: Tensor, labels: Tensor, weights: list[Tensor]) -> Step:
    leaves = [weight.detach() for weight in weights]  # the same memory

    def step() -> tuple[Tensor, ...]:
        logged: list[float] = []
        for batch, of_batch in zip(x, labels):
            update(batch, of_batch, leaves, lambda figure: logged.append(figure.item()))
        return torch.tensor(logged), *weights

    return step
