"""Tensor-parallel prefill of 70B layers: after each half of a layer all products wait until NCCL has summed it."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

HEAD = 128  # numbers
Layer = dict[str, Tensor]


def inputs(draw: Draw, layers: int, prompts: int, tokens: int, width: int, heads: int, hidden: int) -> Inputs:
    """The same prompts on all ranks, as hidden states, and this rank's heads, one key head and part of each MLP."""
    shapes = {
        "qkv": (width, (heads + 2) * HEAD, width),
        "out": (heads * HEAD, width, heads * HEAD * draw.ranks),
        "gate_up": (width, 2 * hidden, width),
        "down": (hidden, width, hidden * draw.ranks),
    }

    def layer() -> Layer:
        return {n: draw.normal(a, b, std=terms**-0.5, dtype=torch.bfloat16) for n, (a, b, terms) in shapes.items()}

    return {
        "x": draw.shared.normal(prompts, tokens, width, dtype=torch.bfloat16),
        "layers": [layer() for _ in range(layers)],
    }


def attended(layer: Layer, x: Tensor) -> Tensor:
    """What this rank's heads add to x; the sum over ranks is the layer's."""
    qkv = (rms_norm(x, x.shape[2:]) @ layer["qkv"]).unflatten(2, (-1, HEAD)).transpose(1, 2)
    q, k, v = qkv.split([qkv.shape[1] - 2, 1, 1], dim=1)
    out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).flatten(2) @ layer["out"]


def gated(layer: Layer, x: Tensor) -> Tensor:
    gate, up = (rms_norm(x, x.shape[2:]) @ layer["gate_up"]).chunk(2, dim=2)
    return (silu(gate) * up) @ layer["down"]


def halves(layers: Sequence[Layer]) -> list[Callable[[Tensor], Tensor]]:
    return [partial(half, layer) for layer in layers for half in (attended, gated)]


def reference(rank: int, x: list[Tensor], layers: list[list[Layer]]) -> Tensor:
    out = []
    for y in x[rank].split(1):
        for of_ranks in zip(*map(halves, layers)):
            y = y + sum(half(y) for half in of_ranks)
        out.append(y)
    return torch.cat(out)


def cost(layers: int, prompts: int, tokens: int, width: int, heads: int, hidden: int) -> Cost:
    """For two ranks, which send each sum once."""
    rows, pairs = prompts * tokens, prompts * tokens * (tokens + 1) // 2
    weights = layers * width * ((2 * heads + 2) * HEAD + 3 * hidden)
    return Cost(
        flops=2 * rows * weights + 4 * layers * pairs * heads * HEAD,
        dtype="bf16",
        read=2 * weights + 2 * rows * width,
        write=2 * rows * width,
        nvlink_bytes=4 * layers * rows * width,
        items=rows,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # what one GPU of eight has of Llama-3.1-70B
        "bench": {"layers": 2, "prompts": 8, "tokens": 1024, "width": 8192, "heads": 8, "hidden": 3584},
        "test": {"layers": 2, "prompts": 4, "tokens": 13, "width": 72, "heads": 2, "hidden": 56},
    },
    tolerance=0.02,  # bfloat16 rounds each product, each sum over ranks, and x after it
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor, layers: list[Layer]) -> Step:
    def step() -> Tensor:
        y = x
        for half in halves(layers):
            more = half(y)
            dist.all_reduce(more)
            y = y + more
        return y

    return step
