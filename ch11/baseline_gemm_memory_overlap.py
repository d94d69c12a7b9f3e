"""A matrix product, then an independent optimizer update: memory idles through the first, tensor cores the second."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE, MOMENTUM = 0.01, 0.9
BLOCK = 2048


@triton.jit
def product(x, weight, out, rows, inner, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr):
    """x @ weight, one tile a program; eight rows of tiles at a time, so that L2 serves most of what they share."""
    tile, across, down = tl.program_id(0), tl.cdiv(columns, COLUMNS), tl.cdiv(rows, ROWS)
    first = tile // (8 * across) * 8
    high = tl.minimum(down - first, 8)
    row = ((first + tile % (8 * across) % high).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = ((tile % (8 * across) // high).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, inner, INNER):
        k = start + tl.arange(0, INNER)
        left = tl.load(x + row * inner + k[None, :], (row < rows) & (k[None, :] < inner), 0.0)
        right = tl.load(weight + k[:, None] * columns + column, (k[:, None] < inner) & (column < columns), 0.0)
        total = tl.dot(left, right, total)
    tl.store(out + row * columns + column, total, mask=(row < rows) & (column < columns))


@triton.jit
def update(values, momentum, gradient, count, programs, rate, decay, BLOCK: tl.constexpr):
    """SGD with momentum, in place, by as many programs as are asked for: each takes every `programs`-th block."""
    for block in range(tl.program_id(0), tl.cdiv(count, BLOCK), programs):
        at = block * BLOCK + tl.arange(0, BLOCK)
        there = at < count
        speed = tl.load(momentum + at, there, 0.0) * decay + tl.load(gradient + at, there, 0.0)
        tl.store(momentum + at, speed, there)
        tl.store(values + at, tl.load(values + at, there, 0.0) - rate * speed, there)


def multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    (rows, inner), columns = x.shape, weight.shape[1]
    tiles = triton.cdiv(rows, 128) * triton.cdiv(columns, 256)
    sizes = {"ROWS": 128, "COLUMNS": 256, "INNER": 64}
    product[(tiles,)](x, weight, out, rows, inner, columns, **sizes, num_warps=8, num_stages=3)


def descend(values: Tensor, momentum: Tensor, gradient: Tensor, programs: int) -> None:
    update[(programs,)](values, momentum, gradient, len(values), programs, RATE, MOMENTUM, BLOCK=BLOCK, num_warps=8)


def inputs(draw: Draw, rows: int, inner: int, columns: int, parameters: int) -> Inputs:
    return {
        "x": draw.normal(rows, inner, dtype=torch.float16),
        "weight": draw.normal(inner, columns, std=inner**-0.5, dtype=torch.float16),
        "values": draw.normal(parameters),
        "momentum": draw.normal(parameters),
        "gradient": draw.normal(parameters),
    }


def reference(x: Tensor, weight: Tensor, values: Tensor, momentum: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    speed = MOMENTUM * momentum + gradient
    return x @ weight, values - RATE * speed, speed


def cost(rows: int, inner: int, columns: int, parameters: int) -> Cost:
    """Both at once: the longer of what tensor cores and what memory need."""
    read, written = 2 * inner * (rows + columns), 2 * rows * columns
    flops = 2 * rows * inner * columns
    return Cost(flops=flops, dtype="fp16", read=read + 12 * parameters, write=written + 8 * parameters)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # 0.55 TFLOP, some 0.95 ms in Triton, and 2.7 GB for the update, 0.65 ms
    sizes={
        "bench": {"rows": 8192, "inner": 4096, "columns": 8192, "parameters": 1 << 27},
        "test": {"rows": 131, "inner": 77, "columns": 261, "parameters": 10007},
    },
    tolerance=1e-3,  # the product is rounded to fp16; an update left out would be 1e-2 of the values
    mutates=("values", "momentum"),
)


def prepare(x: Tensor, weight: Tensor, values: Tensor, momentum: Tensor, gradient: Tensor) -> Step:
    out = x.new_empty(len(x), weight.shape[1])

    def step() -> tuple[Tensor, ...]:
        multiply(x, weight, out)
        descend(values, momentum, gradient, triton.cdiv(len(values), BLOCK))
        return out, values, momentum

    return step
