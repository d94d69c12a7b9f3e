"""Layer by layer over all rows: every result, half a gigabyte, goes to memory, and the next operator reads it back."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, rows: int, width: int, layers: int, dtype: str) -> Inputs:
    element, spread = getattr(torch, dtype), (2 / width) ** 0.5  # keeps the variance through a ReLU
    weights = [draw.normal(width, width, std=spread, dtype=element) for _ in range(layers)]
    return {"x": draw.normal(rows, width, dtype=element), "weights": weights}


def reference(x: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights:
        x = (x @ weight).relu_()
    return x


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda rows, width, layers, dtype: Cost(
        flops=2 * rows * width**2 * layers,
        dtype="bf16",
        read=2 * (rows * width + layers * width**2),
        write=2 * rows * width,
        items=rows,
        unit="rows",
    ),
    sizes={
        "bench": {"rows": 1 << 20, "width": 256, "layers": 8, "dtype": "bfloat16"},
        "cpu": {"rows": 40960, "width": 32, "layers": 8, "dtype": "bfloat16"},
        # Several tiles of the sides that cut it up; float16 because Triton's interpreter has no bf16 dot. TMA copies
        # rows that begin at multiples of 16 bytes.
        "test": {"rows": 20011, "width": 24, "layers": 3, "dtype": "float16"},
    },
    tolerance=1.5e-2,  # each layer rounds its result to bf16: eight of them are off by 5e-3
    frozen=("weights",),
)


def forward(rows: Tensor, weights: list[Tensor], scratch: Tensor, out: Tensor) -> Tensor:
    """All layers of some rows; the results stand in `scratch` and `out` in turn, the last one in `out`."""
    for layer, weight in enumerate(weights):
        rows = torch.mm(rows, weight, out=(out, scratch)[(len(weights) - 1 - layer) % 2]).relu_()
    return rows


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    scratch, out = torch.empty_like(x), torch.empty_like(x)

    def step() -> Tensor:
        return forward(x, weights, scratch, out)

    return step
