"""Llama blocks as they are written: each norm, rotation, gate and residual is a chain of kernels through memory."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

HEAD = 64  # width of an attention head
EPSILON, THETA = 1e-5, 500_000.0  # as in Llama 3
Blocks = Callable[[Tensor, Tensor, Tensor, list[list[Tensor]]], Tensor]  # x, cosines, sines, weights by block


def inputs(draw: Draw, blocks: int, width: int, wide: int, batch: int, length: int) -> Inputs:
    """Hidden states, their upstream gradient, and six weights a block: two gains and four matrices [out, in]."""
    branch = (2 * blocks) ** -0.5  # all branches together are as large as the stream they are added to
    shapes = {"qkv": (3 * width, width), "out": (width, width), "gate_up": (2 * wide, width), "down": (width, wide)}
    weights = []
    for _ in range(blocks):
        gains = [draw.uniform(width, low=0.5, high=1.5, dtype=torch.bfloat16) for _ in range(2)]
        scales = {name: (branch if name in ("out", "down") else 1.0) * s[1] ** -0.5 for name, s in shapes.items()}
        weights.append(gains + [draw.normal(*s, std=scales[n], dtype=torch.bfloat16) for n, s in shapes.items()])
    x, slope = (draw.normal(batch, length, width, dtype=torch.bfloat16) for _ in range(2))
    return {"x": x, "slope": slope, "weights": weights}


def wide_enough(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    wide = wide_enough(x)
    return gain * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-right, left), dim=-1) * sines


def block(x: Tensor, cosines: Tensor, sines: Tensor, weights: list[Tensor]) -> Tensor:
    norm1, norm2, qkv, out, gate_up, down = weights
    heads = F.linear(rms_norm(x, norm1), qkv).unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4)
    q, k = rotate(heads[0], cosines, sines), rotate(heads[1], cosines, sines)
    attended = F.scaled_dot_product_attention(q, k, heads[2], is_causal=True)
    x = x + F.linear(attended.transpose(1, 2).flatten(2), out)
    gate, up = F.linear(rms_norm(x, norm2), gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, down)


def stack(x: Tensor, cosines: Tensor, sines: Tensor, weights: list[list[Tensor]]) -> Tensor:
    for of_block in weights:
        x = block(x, cosines, sines, of_block)
    return x


def train(blocks: Blocks, x: Tensor, slope: Tensor, weights: list[list[Tensor]]) -> Step:
    """Forward and backward; the step gives the hidden states, then the gradients of x and of every weight."""
    leaves = [[weight.detach().requires_grad_() for weight in of_block] for of_block in weights]
    start = x.detach().requires_grad_()
    places = torch.arange(x.shape[1], device=x.device, dtype=torch.float64)
    frequencies = THETA ** (-torch.arange(0, HEAD, 2, device=x.device, dtype=torch.float64) / HEAD)
    angles = torch.outer(places, frequencies).repeat(1, 2)  # [length, HEAD]
    cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def step() -> tuple[Tensor, ...]:
        hidden = blocks(start, cosines, sines, leaves)
        slopes = torch.autograd.grad(hidden, [start, *(leaf for of_block in leaves for leaf in of_block)], slope)
        return hidden.detach(), *slopes

    return step


def reference(x: Tensor, slope: Tensor, weights: list[list[Tensor]]) -> tuple[Tensor, ...]:
    """A sequence at a time, for in float64 the scores of all would fill a GPU."""
    answers = [train(stack, *one, weights)() for one in zip(x.split(1), slope.split(1))]
    hidden, slopes = (torch.cat(parts) for parts in list(zip(*answers))[:2])
    return hidden, slopes, *(torch.stack(parts).sum(0) for parts in list(zip(*answers))[2:])


def cost(blocks: int, width: int, wide: int, batch: int, length: int) -> Cost:
    weights, tokens = blocks * width * (4 * width + 3 * wide), batch * length
    flops = 6 * tokens * (weights + blocks * length * width)  # causal attention: half of 12 * length * width a token
    # weights and their gradients, 2 gains a block among them; x and slope in, hidden states and the gradient of x out
    each_way = 2 * (weights + 2 * blocks * width + 2 * tokens * width)
    return Cost(flops=flops, dtype="bf16", read=each_way, write=each_way, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"blocks": 2, "width": 1024, "wide": 2816, "batch": 8, "length": 2048},
        "test": {"blocks": 1, "width": 128, "wide": 344, "batch": 3, "length": 37},
    },
    tolerance=0.025,  # bf16 rounds at 0.2%, again and again through two blocks and back: 1% after two small ones
)


def prepare(x: Tensor, slope: Tensor, weights: list[list[Tensor]]) -> Step:
    return train(stack, x, slope, weights)
