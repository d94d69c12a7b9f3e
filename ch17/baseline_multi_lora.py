"""Each row gets a copy of its adapter's two matrices, and two batched products multiply every row with its own copy."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, projections: int, rows: int, adapters: int, rank: int, width: int, dtype: str) -> Inputs:
    """`ids` tells whose adapter a row wants. Each adapter is wanted once at least, so that the bytes are known."""
    element = getattr(torch, dtype)
    wanted = torch.cat([draw.permutation(adapters), draw.integers(rows - adapters, high=adapters)])
    return {
        "x": draw.normal(projections, rows, width, dtype=element),
        "base": draw.normal(projections, rows, width, dtype=element),  # what the shared weights have made of x
        "ids": wanted[draw.permutation(rows)],
        "a": draw.normal(projections, adapters, rank, width, std=width**-0.5, dtype=element),
        "b": draw.normal(projections, adapters, width, rank, std=rank**-0.5, dtype=element),
    }


def reference(x: Tensor, base: Tensor, ids: Tensor, a: Tensor, b: Tensor) -> Tensor:
    out = base.clone()
    for adapter in range(a.shape[1]):
        own = ids == adapter
        out[:, own] += x[:, own] @ a[:, adapter].mT @ b[:, adapter].mT
    return out


def cost(projections: int, rows: int, adapters: int, rank: int, width: int, dtype: str) -> Cost:
    return Cost(
        read=4 * projections * width * (adapters * rank + rows) + 8 * rows,
        write=2 * projections * width * rows,
        flops=4 * projections * rows * rank * width,
        dtype="bf16",
        items=rows,
        unit="rows",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # Four projections of a layer as wide as a 70B Llama's: 1.1 GB of adapters.
        "bench": {"projections": 4, "rows": 512, "adapters": 128, "rank": 64, "width": 8192, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; an adapter has 21 rows on average, more than a tile
        "test": {"projections": 2, "rows": 83, "adapters": 4, "rank": 24, "width": 72, "dtype": "float16"},
    },
    tolerance=6e-3,  # bf16 rounds the small hidden states, their products and the sums
    frozen=("a", "b"),
)


def prepare(x: Tensor, base: Tensor, ids: Tensor, a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(base)

    def step() -> Tensor:
        for projection, own in enumerate(x):
            hidden = torch.bmm(own[:, None], a[projection, ids].mT)
            torch.add(base[projection], torch.bmm(hidden, b[projection, ids].mT)[:, 0], out=out[projection])
        return out

    return step
