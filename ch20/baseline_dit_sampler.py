"""Guidance asks the network twice a step, with the class and without: two passes, each too small to fill the GPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

HEAD, CHANNELS, GUIDANCE = 72, 16, 2.0  # a head's width; numbers of a patch of 2 by 2; how far beyond the class
Weights = dict[str, Tensor]


def inputs(draw: Draw, blocks: int, width: int, batch: int, patches: int, steps: int, dtype: str) -> Inputs:
    """Noise, class embeddings of the images and of none, time embeddings of the steps, and a transformer (DiT)."""
    element = getattr(torch, dtype)

    def matrix(out: int, size: int, gain: float = 1.0) -> Tensor:
        return draw.normal(out, size, std=gain * size**-0.5, dtype=element)

    def block() -> Weights:
        return {
            "modulation": matrix(6 * width, width, 0.5),
            "qkv": matrix(3 * width, width),
            "out": matrix(width, width),
            "up": matrix(4 * width, width),
            "down": matrix(width, 4 * width),
        }

    return {
        "noise": draw.normal(batch, patches, CHANNELS, dtype=element),
        "classes": draw.normal(batch, width, dtype=element),
        "no_class": draw.normal(1, width, dtype=element),
        "times": draw.normal(steps, width, dtype=element),
        "positions": draw.normal(patches, width, dtype=element),
        "ends": [matrix(width, CHANNELS), matrix(CHANNELS, width)],
        "blocks": [block() for _ in range(blocks)],
    }


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift


def network(x: Tensor, condition: Tensor, positions: Tensor, ends: list[Tensor], blocks: list[Weights]) -> Tensor:
    """The direction (images, patches, CHANNELS) in which x moves, under each image's condition (images, width)."""
    hidden, condition = F.linear(x, ends[0]) + positions, F.silu(condition)
    for block in blocks:
        parts = F.linear(condition, block["modulation"])[:, None].chunk(6, -1)
        numbers = F.linear(modulated(hidden, *parts[:2]), block["qkv"]).unflatten(-1, (3, -1, HEAD))
        attended = F.scaled_dot_product_attention(*numbers.permute(2, 0, 3, 1, 4).unbind())
        hidden = torch.addcmul(hidden, parts[2], F.linear(attended.transpose(1, 2).flatten(2), block["out"]))
        wide = F.gelu(F.linear(modulated(hidden, *parts[3:5]), block["up"]), approximate="tanh")
        hidden = torch.addcmul(hidden, parts[5], F.linear(wide, block["down"]))
    return F.linear(F.layer_norm(hidden, hidden.shape[-1:]), ends[1])


def sampled(
    noise: Tensor, classes: Tensor, no_class: Tensor, times: Tensor, positions: Tensor, **weights: list
) -> Tensor:
    x = noise
    for moment in times:
        with_class = network(x, classes + moment, positions, **weights)
        without = network(x, (no_class + moment).expand(len(x), -1), positions, **weights)
        x = x + (without + GUIDANCE * (with_class - without)) / len(times)
    return x


def cost(blocks: int, width: int, batch: int, patches: int, steps: int, dtype: str) -> Cost:
    """Both passes' products with tokens and attention; each matrix is read, those of the modulation too."""
    tokens, size = 2 * batch * patches, getattr(torch, dtype).itemsize
    flops = steps * tokens * (24 * blocks * width**2 + 4 * blocks * patches * width + 4 * CHANNELS * width)
    read = size * (18 * blocks * width**2 + 2 * CHANNELS * width + patches * width + batch * patches * CHANNELS)
    write = size * batch * patches * CHANNELS
    return Cost(flops=flops, dtype="bf16", read=read, write=write, items=batch, unit="images")


workload = Workload(
    inputs=inputs,
    reference=sampled,
    cost=cost,
    sizes={
        # DiT-XL/2 at 512 by 512 pixels; four steps are enough to time one
        "bench": {"blocks": 28, "width": 1152, "batch": 1, "patches": 1024, "steps": 4, "dtype": "bfloat16"},
        "cpu": {"blocks": 4, "width": 144, "batch": 1, "patches": 16, "steps": 4, "dtype": "float32"},
        "test": {"blocks": 2, "width": 144, "batch": 3, "patches": 7, "steps": 3, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through 28 blocks, four times, and guidance takes a difference of two passes
    frozen=("positions", "ends", "blocks"),
    clock="end_to_end",
    rungs="one_batch graph",
)


def prepare(noise: Tensor, **others: Tensor) -> Step:
    return torch.inference_mode()(lambda: sampled(noise, **others))
