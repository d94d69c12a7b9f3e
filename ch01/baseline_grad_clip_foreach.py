"""Clipping by the global norm, one gradient at a time: 400 norms, then 400 products, each with launches of its own."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

LIMIT = 1.0


def shapes(layers: int, width: int, words: int) -> list[tuple[int, ...]]:
    """What GPT-2 has: two embeddings, twelve tensors a layer, a last norm."""
    projections = [(3, 1), (1, 1), (4, 1), (1, 4)]
    layer = [shape for out, into in projections for shape in ((out * width, into * width), (out * width,))]
    return [(words, width), (1024, width), *(layer + [(width,)] * 4) * layers, (width,), (width,)]


def inputs(draw: Draw, layers: int, width: int, words: int) -> Inputs:
    # Far more than the limit, as early in training: a smaller norm would leave the gradients as they are.
    return {"gradients": [draw.normal(*shape) for shape in shapes(layers, width, words)]}


def reference(gradients: list[Tensor]) -> tuple[Tensor, ...]:
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    return norm, *[gradient * (LIMIT / norm.clamp(min=LIMIT)) for gradient in gradients]


def cost(layers: int, width: int, words: int) -> Cost:
    held = 4 * (width * (words + 1024 + 2) + layers * width * (12 * width + 13))
    return Cost(read=held, write=held)  # a machine with room for them on chip would read them once


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # 400 tensors of 273 M numbers, 1.1 GB: no cache holds them
    sizes={
        "bench": {"layers": 33, "width": 768, "words": 50304},
        "cpu": {"layers": 33, "width": 16, "words": 64},
        "test": {"layers": 2, "width": 19, "words": 37},
    },
    tolerance=1e-6,
    mutates=("gradients",),
    clock="end_to_end",
)


def prepare(gradients: list[Tensor]) -> Step:
    def step() -> tuple[Tensor, ...]:
        norm = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]).norm()
        factor = LIMIT / norm.clamp(min=LIMIT)  # stays on the device: `if norm > LIMIT` would wait for it
        for gradient in gradients:
            gradient.mul_(factor)
        return norm, *gradients

    return step
