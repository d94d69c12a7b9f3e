"""A product whose inner dimension is split over the ranks: all is computed first, then all is summed and shared out."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, rows: int, inner: int, columns: int) -> Inputs:
    """`rows` are those that each rank keeps of the result, `inner` is a rank's share of the inner dimension."""
    return {
        "x": draw.normal(draw.ranks * rows, inner, dtype=torch.bfloat16),
        "w": draw.normal(inner, columns, std=(inner * draw.ranks) ** -0.5, dtype=torch.bfloat16),
    }


def reference(rank: int, x: list[Tensor], w: list[Tensor]) -> Tensor:
    rows = len(x[0]) // len(x)
    return sum(a[rank * rows : (rank + 1) * rows] @ b for a, b in zip(x, w))


def cost(rows: int, inner: int, columns: int, ranks: int = 2) -> Cost:
    """The more ranks, the more rows of x each has, and the more it sends."""
    return Cost(
        flops=2 * ranks * rows * inner * columns,
        dtype="bf16",
        read=2 * (ranks * rows * inner + inner * columns),
        write=2 * rows * columns,
        nvlink_bytes=2 * (ranks - 1) * rows * columns,
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"rows": 16384, "inner": 1792, "columns": 4096},  # the down projection of an 8B model, over eight
        "test": {"rows": 53, "inner": 29, "columns": 37},
    },
    tolerance=0.01,  # each rank's part is rounded to bfloat16, then their sum
    gpus=2,
)


def prepare(x: Tensor, w: Tensor) -> Step:
    partial = x.new_empty(len(x), w.shape[1])
    out = x.new_empty(len(x) // dist.get_world_size(), w.shape[1])

    def step() -> Tensor:
        torch.mm(x, w, out=partial)
        dist.reduce_scatter_tensor(out, partial)
        return out

    return step
