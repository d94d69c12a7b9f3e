"""Gated MLPs keep in bf16 what the backward needs: input, gate before and after, values, their product."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

Layer = Callable[[Tensor, Tensor, Tensor], Tensor]


def inputs(draw: Draw, layers: int, tokens: int, width: int, wide: int) -> Inputs:
    shapes = [(2 * wide, width), (width, wide)] * layers
    x, upstream = (draw.normal(tokens, width, dtype=torch.bfloat16) for _ in range(2))
    weights = [draw.normal(*shape, std=shape[1] ** -0.5, dtype=torch.bfloat16) for shape in shapes]
    return {"x": x, "weights": weights, "upstream": upstream}


def mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, down)


def train_step(
    x: Tensor,
    weights: list[Tensor],
    upstream: Tensor,
    layer: Layer = mlp,
    saving: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Step:
    """Forward, where `saving` decides what autograd keeps, and backward: the output and all gradients."""
    leaf, *leaves = (tensor.detach().requires_grad_() for tensor in (x, *weights))

    def step() -> tuple[Tensor, ...]:
        stream = leaf
        with saving():
            for gate_up, down in zip(leaves[::2], leaves[1::2]):
                stream = layer(stream, gate_up, down)
        return stream.detach(), *torch.autograd.grad(stream, [leaf, *leaves], upstream)

    return step


def cost(layers: int, tokens: int, width: int, wide: int) -> Cost:
    weights = layers * 3 * width * wide
    # weights, tokens and their slopes come in, as much goes out
    return Cost(
        flops=6 * tokens * weights,
        dtype="bf16",
        read=2 * (weights + 2 * tokens * width),
        write=2 * (weights + 2 * tokens * width),
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=lambda **given: train_step(**given)(),
    cost=cost,
    # 1.8 GB of activations in bf16
    sizes={
        "bench": {"layers": 3, "tokens": 8192, "width": 4096, "wide": 8192},
        "test": {"layers": 2, "tokens": 131, "width": 72, "wide": 264},
    },
    tolerance=0.048,  # three bits of mantissa are off by 2.6% of the norm, and a gradient sees them twice or more
    goal="memory",
)


def prepare(x: Tensor, weights: list[Tensor], upstream: Tensor) -> Step:
    return train_step(x, weights, upstream)
