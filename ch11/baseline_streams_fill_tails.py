"""Eight products in turn, each of 144 tiles for 132 multiprocessors: in each one's second wave 12 work and 120 idle."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


@triton.jit
def product(x, weight, out, rows, inner, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr):
    """x @ weight, one tile a program; tiles of the same columns follow each other, so that L2 serves the weights."""
    tile, down = tl.program_id(0), tl.cdiv(rows, ROWS)
    row = (tile % down * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tile // down * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, inner, INNER):
        k = start + tl.arange(0, INNER)
        left = tl.load(x + row * inner + k[None, :], (row < rows) & (k[None, :] < inner), 0.0)
        right = tl.load(weight + k[:, None] * columns + column, (k[:, None] < inner) & (column < columns), 0.0)
        total = tl.dot(left, right, total)
    tl.store(out + row * columns + column, total, mask=(row < rows) & (column < columns))


def multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    (rows, inner), columns = x.shape, weight.shape[1]
    tiles = triton.cdiv(rows, 128) * triton.cdiv(columns, 256)
    sizes = {"ROWS": 128, "COLUMNS": 256, "INNER": 64}
    product[(tiles,)](x, weight, out, rows, inner, columns, **sizes, num_warps=8, num_stages=3)


def inputs(draw: Draw, count: int, rows: int, inner: int, columns: int) -> Inputs:
    return {
        "xs": draw.normal(count, rows, inner, dtype=torch.float16),
        "weights": draw.normal(count, inner, columns, std=inner**-0.5, dtype=torch.float16),
    }


def cost(count: int, rows: int, inner: int, columns: int) -> Cost:
    read, write = 2 * count * inner * (rows + columns), 2 * count * rows * columns
    return Cost(flops=2 * count * rows * inner * columns, dtype="fp16", read=read, write=write)


workload = Workload(
    inputs=inputs,
    reference=lambda xs, weights: xs @ weights,
    cost=cost,
    # 9 x 16 tiles a product; a multiprocessor holds one, for it takes 144 KiB of shared memory
    sizes={
        "bench": {"count": 8, "rows": 1152, "inner": 4096, "columns": 4096},
        "test": {"count": 3, "rows": 131, "inner": 77, "columns": 261},
    },
    tolerance=1e-3,  # rounded to fp16
)


def prepare(xs: Tensor, weights: Tensor) -> Step:
    out = xs.new_empty(*xs.shape[:2], weights.shape[2])

    def step() -> Tensor:
        for parts in zip(xs, weights, out):
            multiply(*parts)
        return out

    return step
