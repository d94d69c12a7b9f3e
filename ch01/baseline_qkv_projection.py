"""Queries, keys and values of 16 tokens by three products a layer: the two small ones cannot fill the GPU."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Step, Workload

SHARE = 4  # query heads to a head of keys and values, as in grouped-query attention


def inputs(draw: Draw, tokens: int, width: int, layers: int, dtype: str) -> Inputs:
    def weights(outputs: int) -> list[Tensor]:
        std = width**-0.5  # keeps the size of what passes through
        return [draw.normal(outputs, width, std=std, dtype=getattr(torch, dtype)) for _ in range(layers)]

    x = draw.normal(tokens, width, dtype=getattr(torch, dtype))
    return {"x": x, "queries": weights(width), "keys": weights(width // SHARE), "values": weights(width // SHARE)}


def projections(x: Tensor, queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> tuple[Tensor, ...]:
    """Queries, keys and values of each layer, whose queries stand in for the next layer's input.

    In a model more comes between. What matters stays: a layer's products cannot begin before the layer above is done.
    """
    out: list[Tensor] = []
    for of_layer in zip(queries, keys, values):
        out += [linear(x, weight) for weight in of_layer]
        x = out[-3]
    return tuple(out)


def cost(tokens: int, width: int, layers: int, dtype: str) -> Cost:
    outputs = width + 2 * (width // SHARE)
    return Cost(
        read=2 * (layers * width * outputs + tokens * width),
        write=2 * layers * tokens * outputs,
        flops=2 * layers * tokens * width * outputs,
        dtype="bf16",
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=projections,
    cost=cost,
    sizes={
        # a Llama 8B's projections: 50 MB a layer, which L2 would keep, 403 MB together, which it cannot
        "bench": {"tokens": 16, "width": 4096, "layers": 8, "dtype": "bfloat16"},
        "cpu": {"tokens": 16, "width": 512, "layers": 8, "dtype": "float32"},
        "test": {"tokens": 3, "width": 68, "layers": 2, "dtype": "bfloat16"},
    },
    tolerance=1e-2,  # bf16 rounds (2e-3) after each of eight layers
    frozen=("queries", "keys", "values"),
)


def prepare(x: Tensor, queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> Step:
    def step() -> tuple[Tensor, ...]:
        return projections(x, queries, keys, values)

    return step
