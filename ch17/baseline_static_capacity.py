"""Mixture of depths by a mask: the CPU waits to learn how many tokens a layer picked, three times in each layer."""

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, rms_norm

from common.python.workload import Cost, Draw, Inputs, Step, Workload

SHARE = 8  # a layer's router picks one in eight tokens of each sequence; the others pass it by


def inputs(draw: Draw, layers: int, batch: int, length: int, width: int, dtype: str) -> Inputs:
    """`scores` are the routers'. No two of a sequence are equal, so that no rounding decides which are the highest."""
    element, deep = getattr(torch, dtype), layers**-0.5
    ranks = draw.uniform(layers, batch, length).argsort(-1)
    return {
        "x": draw.normal(batch, length, width, dtype=element),
        "scores": ranks * (8 / length) - 4,
        "up": [draw.normal(4 * width, width, std=width**-0.5, dtype=element) for _ in range(layers)],
        "down": [draw.normal(width, 4 * width, std=deep * width**-0.5, dtype=element) for _ in range(layers)],
    }


def block(rows: Tensor, scores: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """An MLP on the picked tokens (rows, width), whose answer counts by the score (rows) of each."""
    hidden = gelu(linear(rms_norm(rows, rows.shape[-1:]), up), approximate="tanh")
    return rows + scores.sigmoid().to(rows.dtype)[:, None] * linear(hidden, down)


def reference(x: Tensor, scores: Tensor, up: list[Tensor], down: list[Tensor]) -> Tensor:
    for of_layer, *weights in zip(scores, up, down):
        for sequence, own in zip(x, of_layer):
            picked = own.argsort(descending=True)[: max(1, len(own) // SHARE)]
            sequence[picked] = block(sequence[picked], own[picked], *weights)
    return x


def cost(layers: int, batch: int, length: int, width: int, dtype: str) -> Cost:
    """The picked tokens' products; all tokens in and out once."""
    picked, tokens = batch * max(1, length // SHARE), batch * length
    return Cost(
        flops=16 * layers * picked * width**2,
        dtype="bf16",
        read=2 * (8 * layers * width**2 + tokens * width),
        write=2 * tokens * width,
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 2,048 of 16,384 tokens in a layer, 34 GFLOP; 16.8 MB of weights
        "bench": {"layers": 24, "batch": 8, "length": 2048, "width": 1024, "dtype": "bfloat16"},
        "test": {"layers": 3, "batch": 3, "length": 29, "width": 19, "dtype": "float32"},
    },
    tolerance=1e-2,  # bf16 rounds (2e-3) a token each time that it is picked, three times on average
    frozen=("up", "down"),
    clock="end_to_end",
)


def prepare(x: Tensor, scores: Tensor, up: list[Tensor], down: list[Tensor]) -> Step:
    capacity = max(1, x.shape[1] // SHARE)

    def step() -> Tensor:
        out = x.clone()
        for of_layer, *weights in zip(scores, up, down):
            mask = of_layer >= of_layer.topk(capacity).values[:, -1:]
            out[mask] = block(out[mask], of_layer[mask], *weights)
        return out

    return step
