"""Each block keeps what its backward will want, sixteen hidden states' worth, until the backward is back at it."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from common.python.workload import Cost, Draw, Inputs, Step, Workload

HEAD = 64  # width of an attention head
PROJECTIONS = {"qkv": (3, 1), "out": (1, 1), "up": (4, 1), "down": (1, 4)}  # rows and columns, in hidden states


def inputs(draw: Draw, blocks: int, width: int, batch: int, length: int) -> Inputs:
    """Embedded tokens, the hidden states they should become, and four weights a block (no biases, no norm weights)."""
    branch = (2 * blocks) ** -0.5  # GPT-2's rule: all branches together are as large as the stream they are added to
    x, target = (draw.normal(batch, length, width, dtype=torch.bfloat16) for _ in range(2))
    stacks = {}
    for name, (rows, columns) in PROJECTIONS.items():
        std = (columns * width) ** -0.5 * (branch if name in ("out", "down") else 1.0)
        shape = rows * width, columns * width
        stacks[name] = [draw.normal(*shape, std=std, dtype=torch.bfloat16) for _ in range(blocks)]
    return {"x": x, "target": target, **stacks}


def block(x: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    heads = F.linear(F.layer_norm(x, x.shape[-1:]), qkv).unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4)
    attended = F.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
    x = x + F.linear(attended.transpose(1, 2).flatten(2), out)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)


def train_step(run: Callable[..., Tensor], x: Tensor, target: Tensor, *stacks: list[Tensor]) -> Step:
    """Forward and backward through blocks that `run` calls; the step gives the loss and the weights' gradients."""
    weights = [[weight.detach().requires_grad_() for weight in stack] for stack in stacks]

    def step() -> tuple[Tensor, ...]:
        hidden = x
        for of_block in zip(*weights):
            hidden = run(hidden, *of_block)
        loss = (hidden - target).to(torch.promote_types(x.dtype, torch.float32)).square().mean()
        return loss.detach(), *torch.autograd.grad(loss, [weight for stack in weights for weight in stack])

    return step


def reference(x: Tensor, target: Tensor, **stacks: list[Tensor]) -> tuple[Tensor, ...]:
    kept_small = partial(checkpoint, block, use_reentrant=False)  # in float64 the activations are four times as large
    return train_step(kept_small, x, target, *stacks.values())()


def cost(blocks: int, width: int, batch: int, length: int) -> Cost:
    weights, tokens = 12 * blocks * width**2, batch * length
    flops = 6 * tokens * (weights + blocks * length * width)  # causal attention: half of 12 * length * width a token
    read = 2 * (weights + 2 * tokens * width)  # weights, x and target, in bf16; gradients are written
    return Cost(flops=flops, dtype="bf16", read=read, write=2 * weights, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"blocks": 24, "width": 512, "batch": 16, "length": 512},
        "test": {"blocks": 3, "width": 128, "batch": 3, "length": 37},
    },
    tolerance=0.025,  # bf16 rounds at 0.2%, again and again through 24 blocks and back
    goal="memory",
)


def prepare(
    x: Tensor, target: Tensor, qkv: list[Tensor], out: list[Tensor], up: list[Tensor], down: list[Tensor]
) -> Step:
    return train_step(block, x, target, qkv, out, up, down)
