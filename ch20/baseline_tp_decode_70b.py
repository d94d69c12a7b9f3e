"""The host launches every kernel of every layer; twice a layer NCCL sums the ranks' parts."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from common.models.decoder import EPSILON, SHARPNESS
from common.python.workload import Cost, Draw, Inputs, Step, Workload

Layer = dict[str, Tensor]
Tail = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # a rank's part, states, gain: new states, and normed


def inputs(draw: Draw, layers: int, rows: int, past: int, width: int, heads: int, dim: int, hidden: int) -> Inputs:
    """A rank's query heads and one of keys and values; the last place in a cache is for the sequence's new token."""

    def matrix(out: int, inner: int, shares: int = 1) -> Tensor:
        return draw.normal(out, inner, std=(inner * shares) ** -0.5, dtype=torch.bfloat16)

    def layer() -> Layer:
        out, down = matrix(width, heads * dim, draw.ranks), matrix(width, hidden, draw.ranks)
        qkv = matrix((heads + 2) * dim, width)
        qkv[: heads * dim] *= SHARPNESS
        return {"qkv": qkv, "out": out, "gate_up": matrix(2 * hidden, width), "down": down}

    return {
        "x": draw.shared.normal(rows, width, dtype=torch.bfloat16),
        "angles": draw.shared.uniform(rows, 1, dim // 2, high=6.28),  # by which the new tokens' pairs are turned
        "gains": draw.shared.uniform(2 * layers + 1, width, low=0.5, high=1.5, dtype=torch.bfloat16),
        "layers": [layer() for _ in range(layers)],
        "caches": draw.normal(layers, 2, rows, 1, past + 1, dim, dtype=torch.bfloat16),
    }


def attended(normed: Tensor, layer: Layer, cache: Tensor, angles: Tensor) -> Tensor:
    """This rank's part of attention (rows, width). The heads share a key, so they are as many queries of one head."""
    dim, cos, sin = cache.shape[-1], angles.cos(), angles.sin()
    turn, cross = (torch.cat(pair, 2).to(normed.dtype) for pair in ((cos, cos), (-sin, sin)))
    heads = linear(normed, layer["qkv"]).unflatten(1, (-1, dim))
    turned = torch.addcmul(heads[:, :-1] * turn, heads[:, :-1].roll(dim // 2, 2), cross)
    cache[0, :, 0, -1], cache[1, :, 0, -1] = turned[:, -1], heads[:, -1]
    seen = scaled_dot_product_attention(turned[:, None, :-1], cache[0], cache[1])
    return linear(seen.flatten(1), layer["out"])


def gated(normed: Tensor, layer: Layer) -> Tensor:
    gate, up = linear(normed, layer["gate_up"]).chunk(2, 1)
    return linear(silu(gate) * up, layer["down"])


def reference(rank: int, layers: list[list[Layer]], **given: list[Tensor]) -> Tensor:
    states, angles, gains = (given[name][rank] for name in ("x", "angles", "gains"))
    for index, of_ranks in enumerate(zip(*layers)):
        wide = [{name: matrix.double() for name, matrix in layer.items()} for layer in of_ranks]
        normed = rms_norm(states, states.shape[1:], gains[2 * index], EPSILON)
        states = states + sum(attended(normed, w, c[index], angles) for w, c in zip(wide, given["caches"]))
        normed = rms_norm(states, states.shape[1:], gains[2 * index + 1], EPSILON)
        states = states + sum(gated(normed, w) for w in wide)
    return rms_norm(states, states.shape[1:], gains[-1], EPSILON)


def cost(layers: int, rows: int, past: int, width: int, heads: int, dim: int, hidden: int) -> Cost:
    """For two ranks: each reads its weights and its caches, and sends its part of each sum."""
    weights = layers * width * ((2 * heads + 2) * dim + 3 * hidden)
    read, sent = 2 * weights + 4 * layers * rows * past * dim, 4 * layers * rows * width
    return Cost(read=read, flops=2 * rows * weights, dtype="bf16", nvlink_bytes=sent, items=rows, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # What each of eight GPUs holds of a 70B model's layers; it has eighty of them.
        "bench": {"layers": 8, "rows": 64, "past": 512, "width": 8192, "heads": 8, "dim": 128, "hidden": 3584},
        "test": {"layers": 2, "rows": 5, "past": 9, "width": 56, "heads": 3, "dim": 16, "hidden": 37},
    },
    tolerance=0.03,  # bfloat16 rounds the states sixteen times on their way, and all that is added to them
    frozen=("layers",),
    mutates=("caches",),
    as_drawn=("layers",),
    gpus=2,
    clock="end_to_end",
)


def decoding(given: Inputs, tail: Tail, repeat: Callable[..., Callable[[], None]] = lambda work, device: work) -> Step:
    """One token for every sequence; `repeat` may capture it."""
    x, out = given["x"], torch.empty_like(given["x"])

    def work() -> None:
        states, normed = x, rms_norm(x, x.shape[1:], given["gains"][0], EPSILON)
        for layer, cache, (first, second) in zip(given["layers"], given["caches"], given["gains"][1:].split(2)):
            states, normed = tail(attended(normed, layer, cache, given["angles"]), states, first)
            states, normed = tail(gated(normed, layer), states, second)
        out.copy_(normed)

    again = repeat(work, x.device)

    def step() -> Tensor:
        again()
        return out

    return step


def summed(part: Tensor, states: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    dist.all_reduce(part)
    states = states + part
    return states, rms_norm(states, states.shape[1:], gain, EPSILON)


def prepare(**given: Any) -> Step:
    return decoding(given, summed)
