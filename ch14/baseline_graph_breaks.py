"""After each sublayer Python asks the GPU for infinities: the compiled graph breaks there, and the queue runs dry."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(gpus=1)
HEAD = 64  # width of an attention head
EPSILON = 1e-6
LARGEST = torch.finfo(torch.float16).max  # 65504
STREAM = 64.0  # standard deviation of the residual stream, and of what a sublayer adds to it
Weights = list[list[Tensor]]  # by layer: qkv, out, up, down, each [out, in]
Layer = Callable[..., Tensor]  # of the hidden states and the layer's weights


def inputs(draw: Draw, layers: int, width: int, batch: int, length: int) -> Inputs:
    """Hidden states of which each 31st token has one feature at fp16's largest number, as T5's have; and weights."""
    hidden = draw.normal(batch, length, width, std=STREAM, dtype=torch.float16)
    massive = torch.arange(0, batch * length, 31, device=hidden.device)
    hidden.view(-1, width)[massive, massive % width] = LARGEST  # what is added makes about half of them infinite
    shapes = {"qkv": (3, 1), "out": (1, 1), "up": (4, 1), "down": (1, 4)}  # in widths
    gains = {"qkv": 1.0, "out": STREAM, "up": 1.0, "down": STREAM}
    weights = [
        [
            draw.normal(rows * width, columns * width, std=gains[name] * (columns * width) ** -0.5, dtype=torch.float16)
            for name, (rows, columns) in shapes.items()
        ]
        for _ in range(layers)
    ]
    return {"hidden": hidden, "weights": weights}


def normed(x: Tensor) -> Tensor:
    """T5's layer norm without its gain: no mean is subtracted, and squares are summed in fp32."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def attend(hidden: Tensor, qkv: Tensor, out: Tensor) -> Tensor:
    heads = F.linear(normed(hidden), qkv).unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4)
    return hidden + F.linear(F.scaled_dot_product_attention(*heads.unbind()).transpose(1, 2).flatten(2), out)


def feed_forward(hidden: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return hidden + F.linear(F.relu(F.linear(normed(hidden), up)), down)


def clamped(hidden: Tensor) -> Tensor:
    return hidden.clamp(-LARGEST, LARGEST)


def encode(layer: Layer, hidden: Tensor, weights: Weights) -> Tensor:
    """An encoder of T5's kind, without its position bias."""
    for of_layer in weights:
        hidden = layer(hidden, *of_layer)
    return normed(hidden)


def branching(hidden: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    hidden = attend(hidden, qkv, out)
    if (hidden.abs() >= LARGEST).any():
        hidden = clamped(hidden)
    hidden = feed_forward(hidden, up, down)
    if (hidden.abs() >= LARGEST).any():
        hidden = clamped(hidden)
    return hidden


def branch_free(hidden: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return clamped(feed_forward(clamped(attend(hidden, qkv, out)), up, down))


def cost(layers: int, width: int, batch: int, length: int) -> Cost:
    weights, tokens = 12 * layers * width**2, batch * length
    return Cost(
        flops=2 * tokens * (weights + 2 * layers * length * width),  # attention: 4 * length * width a token and layer
        dtype="fp16",
        read=2 * (weights + tokens * width),
        write=2 * tokens * width,
        launches=1,
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=lambda hidden, weights: encode(branch_free, hidden, weights),  # float64 has room beyond
    cost=cost,
    sizes={
        "bench": {"layers": 3, "width": 768, "batch": 8, "length": 512},  # a quarter of T5-base's encoder
        "test": {"layers": 2, "width": 128, "batch": 3, "length": 37},
    },
    tolerance=5e-3,
    frozen=("weights",),
    clock="end_to_end",
    rungs="cond launched",
)


def prepare(hidden: Tensor, weights: Weights) -> Step:
    compiled = torch.compile(partial(encode, branching), dynamic=False)

    def step() -> Tensor:
        with torch.inference_mode():
            return compiled(hidden, weights)

    return step
