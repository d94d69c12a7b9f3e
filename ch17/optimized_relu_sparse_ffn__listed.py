"""The up kernel lists the neurons that are not zero, and the down kernel reads the weights of those alone."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_relu_sparse_ffn import workload as workload
from common.python.workload import Step

UP = {"ROWS": 16, "K": 1024, "num_warps": 8}  # 32 KB of weights, in runs of 2 KB
DOWN = {"ROWS": 16, "N": 512, "num_warps": 8}
SPLITS = 64  # parts of the list: 1,024 programs walk along it, each for 512 outputs


@triton.jit
def list_live(up, x, live, values, count, width, wide, ROWS: tl.constexpr, K: tl.constexpr):
    """Neurons above zero and their squares, in whatever order the programs come."""
    neuron = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = up + neuron.to(tl.int64)[:, None] * width
    total = tl.zeros((ROWS, K // 8), tl.float32)  # each thread sums what it loads, 8 numbers at a time
    for begin in range(0, width, K):
        at = begin + tl.arange(0, K)
        tile = tl.load(start + at[None, :], mask=(neuron < wide)[:, None] & (at < width)[None, :], other=0.0)
        product = tile.to(tl.float32) * tl.load(x + at, mask=at < width, other=0.0).to(tl.float32)[None, :]
        total += tl.sum(tl.reshape(product, (ROWS, K // 8, 8)), axis=2)
    hidden = tl.sum(total, axis=1)
    above = (hidden > 0).to(tl.int32)  # past the last neuron there are zeros
    place = tl.atomic_add(count, tl.sum(above, 0), sem="relaxed") + tl.cumsum(above, 0) - 1
    tl.store(live + place, neuron, mask=hidden > 0)
    tl.store(values + place, hidden * hidden, mask=hidden > 0)


@triton.jit
def add_live(
    down, live, values, count, partial, width, SPLITS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """The sums over one part of the list."""
    split, column = tl.program_id(1), tl.program_id(0) * N + tl.arange(0, N)
    last, total = tl.load(count), tl.zeros((ROWS, N), tl.float32)
    for begin in range(split * ROWS, last, SPLITS * ROWS):
        place = begin + tl.arange(0, ROWS)
        neuron = tl.load(live + place, mask=place < last, other=0).to(tl.int64)
        value = tl.load(values + place, mask=place < last, other=0.0)
        inside = (place < last)[:, None] & (column < width)[None, :]
        total += tl.load(down + neuron[:, None] * width + column[None, :], mask=inside, other=0.0) * value[:, None]
    tl.store(partial + split * width + column, tl.sum(total, axis=0), mask=column < width)


@triton.jit
def add_parts(partial, count, out, width, SPLITS: tl.constexpr, N: tl.constexpr):
    column = tl.program_id(0) * N + tl.arange(0, N)
    at = tl.arange(0, SPLITS)[:, None] * width + column[None, :]
    total = tl.sum(tl.load(partial + at, mask=(column < width)[None, :], other=0.0), axis=0)
    tl.store(out + column, total.to(out.dtype.element_ty), mask=column < width)
    if tl.program_id(0) == 0:
        tl.store(count, 0)  # for the next step: no program of this kernel reads it


def prepare(x: Tensor, up: Tensor, down: Tensor) -> Step:
    (wide, width), out = up.shape, torch.empty_like(x)
    live, count = (x.new_zeros(n, dtype=torch.int32) for n in (wide, 1))
    values, partial = (x.new_empty(shape, dtype=torch.float32) for shape in (wide, (SPLITS, width)))

    def step() -> Tensor:
        list_live[(triton.cdiv(wide, UP["ROWS"]),)](up, x, live, values, count, width, wide, **UP)
        grid = (triton.cdiv(width, DOWN["N"]), SPLITS)
        add_live[grid](down, live, values, count, partial, width, SPLITS, **DOWN)
        add_parts[(triton.cdiv(width, 64),)](partial, count, out, width, SPLITS, N=64)
        return out

    return step
