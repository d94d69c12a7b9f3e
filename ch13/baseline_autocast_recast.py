"""Autocast around each micro-batch: 16 times an update, every fp32 weight is cast to bf16, and its gradient back."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

MICRO_BATCHES = 16


def inputs(draw: Draw, blocks: int, width: int, tokens: int) -> Inputs:
    """Tokens of each micro-batch, what they should become, and a transformer's MLPs in fp32."""
    shapes = [(4 * width, width), (width, 4 * width)] * blocks
    x, target = (draw.normal(MICRO_BATCHES, tokens, width, dtype=torch.bfloat16) for _ in range(2))
    return {"x": x, "target": target, "weights": [draw.normal(*shape, std=shape[1] ** -0.5) for shape in shapes]}


def loss_of(x: Tensor, target: Tensor, weights: Sequence[Tensor]) -> Tensor:
    for up, down in zip(weights[::2], weights[1::2]):
        x = x + F.linear(F.gelu(F.linear(x, up)), down)
    return (x - target).to(torch.promote_types(x.dtype, torch.float32)).square().mean()


def accumulate(losses: Iterable[Tensor], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """The micro-batches' losses, and the sums of their gradients, which come into the leaves' type by autograd."""
    told = []
    for leaf in leaves:
        leaf.grad = None
    for loss in losses:
        loss.backward()
        told.append(loss.detach())
    return torch.stack(told), *(leaf.grad for leaf in leaves if leaf.grad is not None)


def reference(x: Tensor, target: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    leaves = [weight.requires_grad_() for weight in weights]
    return accumulate((loss_of(*batch, leaves) for batch in zip(x, target)), leaves)


def cost(blocks: int, width: int, tokens: int) -> Cost:
    """Products forward and back, but for the gradient of what comes in; fp32 weights in, fp32 gradients out."""
    weights, first, rows = 8 * blocks * width**2, 4 * width**2, MICRO_BATCHES * tokens
    flops, read = rows * (6 * weights - 2 * first), 4 * weights + 4 * rows * width
    return Cost(flops=flops, dtype="bf16", read=read, write=4 * weights, items=rows, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # 67 M weights. The fewer tokens in a micro-batch, the more the casts weigh beside its products.
    sizes={"bench": {"blocks": 2, "width": 2048, "tokens": 512}, "test": {"blocks": 2, "width": 37, "tokens": 11}},
    tolerance=2e-2,  # bf16 rounds at 0.2%, after each product and gelu, forward and back
)


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    leaves = [weight.detach().requires_grad_() for weight in weights]

    def losses() -> Iterable[Tensor]:
        for batch in zip(x, target):
            with torch.autocast(x.device.type, torch.bfloat16):
                loss = loss_of(*batch, leaves)
            yield loss  # autocast forgets its casts when it ends

    return lambda: accumulate(losses(), leaves)
