"""Squared norms, and a product of rows and columns that adds them in registers: nothing large in between."""

import triton
import triton.language as tl
from torch import Tensor

from ch01.baseline_pairwise_distance import workload as workload
from common.python.workload import Step

ROWS = 32  # that a program lays out
TILE = {"M": 128, "N": 128, "K": 16}
OPTIONS = {"num_warps": 8, "num_stages": 3, "maxnreg": 128}  # registers for two programs a multiprocessor


@triton.jit
def lay_out(x, y, columns, of_x, of_y, points, others, dims, ROWS: tl.constexpr, D: tl.constexpr):
    """columns = y.T, of_x = |x|^2 and of_y = |y|^2."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    place, inside = row[:, None] * dims + column[None, :], (column < dims)[None, :]
    a = tl.load(x + place, (row < points)[:, None] & inside, other=0.0)
    b = tl.load(y + place, (row < others)[:, None] & inside, other=0.0)
    tl.store(of_x + row, tl.sum(a * a, axis=1), row < points)
    tl.store(of_y + row, tl.sum(b * b, axis=1), row < others)
    tl.store(columns + column[None, :] * others + row[:, None], b, (row < others)[:, None] & inside)


@triton.jit
def distances(x, columns, of_x, of_y, out, points, others, dims, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N)
    left, right = (row < points)[:, None], (column < others)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, dims, K):
        depth = first + tl.arange(0, K)
        inside = depth < dims
        a = tl.load(x + row[:, None] * dims + depth[None, :], left & inside[None, :], other=0.0)
        b = tl.load(columns + depth[:, None] * others + column[None, :], right & inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")  # on the fp32 units
    norms = tl.load(of_x + row[:, None], left, other=0.0) + tl.load(of_y + column[None, :], right, other=0.0)
    place = out + row.to(tl.int64)[:, None] * others + column[None, :]
    tl.store(place, tl.maximum(norms - 2.0 * total, 0.0), left & right)  # rounding may fall below zero


def prepare(x: Tensor, y: Tensor) -> Step:
    (points, dims), others = x.shape, len(y)
    columns, out = y.new_empty(dims, others), x.new_empty(points, others)
    of_x, of_y, width = x.new_empty(points), y.new_empty(others), triton.next_power_of_2(dims)
    grids = (triton.cdiv(max(points, others), ROWS),), (triton.cdiv(others, TILE["N"]), triton.cdiv(points, TILE["M"]))

    def step() -> Tensor:
        lay_out[grids[0]](x, y, columns, of_x, of_y, points, others, dims, ROWS, width, num_warps=4)
        distances[grids[1]](x, columns, of_x, of_y, out, points, others, dims, **TILE, **OPTIONS)
        return out

    return step
