"""Training in fp16 with a GradScaler: gradients are unscaled in a pass of their own, and the host waits for a flag."""

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE = 0.05  # by the root of the width
FIRST_SCALE = 256.0  # of the loss; torch begins at 65,536, and halves it when an update overflows


def inputs(draw: Draw, steps: int, tokens: int, width: int, layers: int) -> Inputs:
    return {
        "x": draw.normal(steps, tokens, width),
        "target": draw.normal(steps, tokens, width),
        "weights": [draw.normal(width, width, std=0.5 * width**-0.5) for _ in range(layers)],
    }


def loss_of(x: Tensor, target: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights:
        x = x + silu(linear(x, weight))
    return (x.to(target.dtype) - target).square().sum() / len(x)


def reference(x: Tensor, target: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    leaves, losses = [weight.requires_grad_() for weight in weights], []
    for batch, of_batch in zip(x, target):
        loss = loss_of(batch, of_batch, leaves)
        losses.append(loss.detach())
        for leaf, gradient in zip(leaves, torch.autograd.grad(loss, leaves)):
            leaf.detach().sub_(gradient, alpha=RATE * len(leaf) ** -0.5)
    return torch.stack(losses), *(leaf.detach() for leaf in leaves)


def cost(steps: int, tokens: int, width: int, layers: int) -> Cost:
    """Products forward and back, but for the gradient of what comes in; tokens and weights in, weights out, in fp32."""
    flops, weights = 2 * steps * tokens * width**2 * (3 * layers - 1), 4 * layers * width**2
    read = 8 * steps * tokens * width + weights
    return Cost(flops=flops, dtype="bf16", read=read, write=weights, items=steps, unit="training steps")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 315 M weights and few tokens: passes over weights take longer than products, and the GPU takes longer than
        # the launches. Unscaling reads and writes 1.3 GB of gradients once more.
        "bench": {"steps": 8, "tokens": 256, "width": 10240, "layers": 3},
        "cpu": {"steps": 4, "tokens": 64, "width": 256, "layers": 4},
        "test": {"steps": 3, "tokens": 23, "width": 37, "layers": 3},
    },
    tolerance=5e-3,  # bf16 rounds at 0.2%, in gradients that move weights by a tenth
    mutates=("weights",),
    clock="end_to_end",
)


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    leaves = [weight.detach().requires_grad_() for weight in weights]  # the same memory
    optimizer = torch.optim.SGD(leaves, lr=RATE * len(leaves[0]) ** -0.5, foreach=True)

    def step() -> tuple[Tensor, ...]:
        scaler, losses = torch.amp.GradScaler(x.device.type, init_scale=FIRST_SCALE), []
        for batch, of_batch in zip(x, target):
            with torch.autocast(x.device.type, dtype=torch.float16):
                loss = loss_of(batch, of_batch, leaves)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses).cpu(), *weights

    return step
