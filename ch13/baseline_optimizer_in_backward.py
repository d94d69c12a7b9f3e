"""All gradients are computed, then AdamW reads all, then they are freed: for a moment every one is in memory."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adamw import adamw

from common.python.workload import Cost, Draw, Inputs, Step, Workload

DECAY, BETA1, BETA2, EPSILON = 0.1, 0.9, 0.95, 1e-8


def inputs(draw: Draw, blocks: int, width: int, tokens: int) -> Inputs:
    """A transformer's MLPs, and AdamW's moments of about the gradients' size, so that an update shows both."""
    shapes, size = [(4 * width, width), (width, 4 * width)] * blocks, 8 * tokens**-0.5
    parts = {
        "weights": lambda shape: draw.normal(*shape, std=shape[1] ** -0.5, dtype=torch.bfloat16),
        "means": lambda shape: draw.normal(*shape, std=0.3 * size, dtype=torch.bfloat16),
        "squares": lambda shape: draw.uniform(*shape, low=size**2, high=2 * size**2, dtype=torch.bfloat16),
    }
    x, target = (draw.normal(tokens, width, dtype=torch.bfloat16) for _ in range(2))
    count = draw.host.integers(1, low=1, high=20)  # of this update; the training loop counts on the host
    return {"x": x, "target": target, "count": count} | {name: list(map(of, shapes)) for name, of in parts.items()}


def loss_of(x: Tensor, target: Tensor, weights: Sequence[Tensor]) -> Tensor:
    for up, down in zip(weights[::2], weights[1::2]):
        x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)
    return (x - target).to(torch.promote_types(x.dtype, torch.float32)).square().sum() / len(x)


def rate(weight: Tensor) -> float:
    """A fifth of a weight's size or more: in bf16 a smaller update would not show."""
    return 0.2 * min(weight.shape) ** -0.5


def reference(
    x: Tensor, target: Tensor, count: Tensor, weights: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> tuple[Tensor, ...]:
    leaves = [weight.requires_grad_() for weight in weights]
    loss = loss_of(x, target, leaves)
    unbias1, unbias2 = 1 - BETA1 ** int(count), 1 - BETA2 ** int(count)
    for leaf, m, v, g in zip(leaves, means, squares, torch.autograd.grad(loss, leaves)):
        p = leaf.detach()
        m.lerp_(g, 1 - BETA1)
        v.lerp_(g.square(), 1 - BETA2)
        p.sub_(rate(p) * (DECAY * p + m / unbias1 / ((v / unbias2).sqrt() + EPSILON)))
    return loss.detach(), *(leaf.detach() for leaf in leaves), *means, *squares


def cost(blocks: int, width: int, tokens: int) -> Cost:
    """Products forward and back, but for the gradient of what comes in; weights and moments in and out, in bf16."""
    weights, first = 8 * blocks * width**2, 4 * width**2
    flops, states = tokens * (6 * weights - 2 * first), 6 * weights
    read = states + 4 * tokens * width
    return Cost(flops=flops, dtype="bf16", read=read, write=states, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # 151 M weights, whose gradients are 302 MB; 16 matrices of 19 MB
    sizes={
        "bench": {"blocks": 8, "width": 1536, "tokens": 256},
        "test": {"blocks": 3, "width": 37, "tokens": 11},
    },
    tolerance=3.5e-2,  # one element may be off by ten times that: the largest gradients' squares are 100 times the rms
    mutates=("weights", "means", "squares"),
    clock="end_to_end",
    goal="memory",
)


def update(
    weights: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], count: Tensor
) -> None:
    """AdamW's fused kernel, in place."""
    before = torch.full((len(weights),), int(count) - 1.0, device=weights[0].device).unbind()
    numbers = {"lr": rate(weights[0]), "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": EPSILON}
    how = {"foreach": False, "fused": True, "amsgrad": False, "maximize": False}
    adamw(weights, gradients, means, squares, [], list(before), **how, **numbers)


def prepare(
    x: Tensor, target: Tensor, count: Tensor, weights: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> Step:
    leaves = [weight.detach().requires_grad_() for weight in weights]  # the same memory

    def step() -> tuple[Tensor, ...]:
        loss = loss_of(x, target, leaves)
        loss.backward()
        update(weights, [leaf.grad for leaf in leaves if leaf.grad is not None], means, squares, count)
        for leaf in leaves:
            leaf.grad = None
        return loss.detach(), *weights, *means, *squares

    return step
