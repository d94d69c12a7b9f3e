"""Images lie plane by plane, as they were loaded; tensor cores want channels together, so convolutions turn them."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

Layer = dict[str, Tensor]  # a convolution's weight, and its batch norm's numbers


def plan(depths: list[int], base: int) -> list[list[tuple[int, int, int]]]:
    """Of each block of ResNet-50's kind: inputs, outputs and kernel of its three convolutions and its shortcut's."""
    blocks, inward = [], base
    for stage, depth in enumerate(depths):
        inner = base * 2**stage
        for _ in range(depth):
            block = [(inward, inner, 1), (inner, inner, 3), (inner, 4 * inner, 1)]
            blocks.append(block if inward == 4 * inner else [*block, (inward, 4 * inner, 1)])
            inward = 4 * inner
    return blocks


def inputs(draw: Draw, depths: list[int], base: int, batch: int, side: int, classes: int, dtype: str) -> Inputs:
    """Each image has a colour of its own below its noise; a block adds a third of what it gets, so nothing explodes."""
    element = getattr(torch, dtype)

    def layer(inward: int, outward: int, kernel: int, gain: float = 1.0) -> Layer:
        std = (2 / (inward * kernel**2)) ** 0.5
        return {
            "weight": draw.normal(outward, inward, kernel, kernel, std=std, dtype=element),
            "mean": draw.normal(outward, std=0.1, dtype=element),
            "variance": draw.uniform(outward, low=0.5, high=1.5, dtype=element),
            "gain": draw.uniform(outward, low=0.5 * gain, high=1.5 * gain, dtype=element),
            "shift": draw.normal(outward, std=0.1 * gain, dtype=element),
        }

    blocks = plan(depths, base)
    last = blocks[-1][2][1]
    return {
        "images": draw.normal(batch, 3, side, side, dtype=element) + 3 * draw.normal(batch, 3, 1, 1, dtype=element),
        "stem": layer(3, base, 7),
        "blocks": [[layer(*size, 1 / 3 if place == 2 else 1.0) for place, size in enumerate(b)] for b in blocks],
        "head": draw.normal(classes, last, std=last**-0.5, dtype=element),
    }


def unit(x: Tensor, layer: Layer, stride: int = 1) -> Tensor:
    x = F.conv2d(x, layer["weight"], stride=stride, padding=layer["weight"].shape[2] // 2)
    return F.batch_norm(x, layer["mean"], layer["variance"], layer["gain"], layer["shift"])


def network(images: Tensor, stem: Layer, blocks: list[list[Layer]], head: Tensor) -> Tensor:
    """Scores (batch, classes)."""
    x = F.max_pool2d(F.relu(unit(images, stem, 2)), 3, 2, 1)
    for first, second, third, *shortcut in blocks:
        stride = 2 if x.shape[1] == 2 * len(second["weight"]) else 1  # at a stage's start, but for the first stage
        hidden = F.relu(unit(F.relu(unit(x, first)), second, stride))
        x = F.relu(unit(hidden, third) + (unit(x, shortcut[0], stride) if shortcut else x))
    return F.linear(x.mean((2, 3)), head)


def cost(depths: list[int], base: int, batch: int, side: int, classes: int, dtype: str) -> Cost:
    """Images and weights are read once: what passes from layer to layer need not reach memory."""
    halved = (side + 1) // 2
    products, weights, area = halved**2 * 49 * 3 * base, 49 * 3 * base, ((halved + 1) // 2) ** 2
    for block in plan(depths, base):
        inner, inward = block[1][0], block[0][0]
        after = (int(area**0.5) + 1) // 2 if inward == 2 * inner else int(area**0.5)
        for place, (wide, out, kernel) in enumerate(block):
            weights += wide * out * kernel**2
            products += wide * out * kernel**2 * (area if place == 0 else after**2)
        area = after**2
    weights += 4 * block[1][0] * classes
    moved = getattr(torch, dtype).itemsize * (weights + 3 * batch * side**2)
    flops = 2 * batch * (products + 4 * block[1][0] * classes)
    return Cost(flops=flops, dtype="bf16", read=moved, write=2 * batch * classes, items=batch, unit="images")


workload = Workload(
    inputs=inputs,
    reference=lambda images, **weights: torch.cat([network(some, **weights) for some in images.split(16)]),
    cost=cost,
    sizes={
        "bench": {
            "depths": [3, 4, 6, 3],
            "base": 64,
            "batch": 64,
            "side": 224,
            "classes": 1000,
            "dtype": "bfloat16",
        },
        "cpu": {"depths": [3, 4, 6, 3], "base": 16, "batch": 4, "side": 64, "classes": 100, "dtype": "float32"},
        "test": {"depths": [1, 2], "base": 8, "batch": 3, "side": 37, "classes": 11, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16, which rounds after each of 160 operators
    frozen=("stem", "blocks", "head"),
)


def prepare(images: Tensor, stem: Layer, blocks: list[list[Layer]], head: Tensor) -> Step:
    return torch.inference_mode()(lambda: network(images, stem, blocks, head))
