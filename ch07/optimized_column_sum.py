"""The rows are split too: programs fill the GPU, each with tiles on the way, and a second pass adds up their sums."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch07.baseline_column_sum import workload as workload
from common.python.workload import Step

ROWS, COLUMNS, TURN = 64, 128, 8  # of a tile, and of the rows that 128 threads load in one turn, 16 bytes each
SHARE = 1024  # rows of a program, whole tiles: the partial sums, 4 bytes for 1024 x 2, hardly add to the bytes
LAST_ROWS, LAST_COLUMNS, LAST_TURN = 64, 32, 16  # the same of the second pass, which has few rows


@triton.jit
def sum_rows(grad, out, rows, columns, share, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TURN: tl.constexpr):
    """Row i of `out` is the sum of the i-th `share` of the rows."""
    column, part = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    row = tl.arange(0, ROWS)
    begin = part * share
    tile = grad + begin.to(tl.int64) * columns + row[:, None] * columns + column[None, :]
    total = tl.zeros((TURN, COLUMNS), tl.float32)  # rows of different turns are added up in registers
    for first in tl.range(begin, min(begin + share, rows), ROWS, num_stages=3):
        mask = (first + row < rows)[:, None] & (column < columns)[None, :]
        numbers = tl.load(tile, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(tl.reshape(numbers, (ROWS // TURN, TURN, COLUMNS)), axis=0)
        tile += ROWS * columns
    tl.store(out + part * columns + column, tl.sum(total, axis=0), mask=column < columns)


def prepare(grad: Tensor) -> Step:
    rows, columns = grad.shape
    parts = triton.cdiv(rows, SHARE)
    partial = grad.new_empty(parts, columns, dtype=torch.float32)
    out = grad.new_empty(columns, dtype=torch.float32)
    grid, last_grid = (triton.cdiv(columns, COLUMNS), parts), (triton.cdiv(columns, LAST_COLUMNS), 1)

    def step() -> Tensor:
        sum_rows[grid](grad, partial, rows, columns, SHARE, ROWS, COLUMNS, TURN, num_warps=4)
        last = LAST_ROWS, LAST_COLUMNS, LAST_TURN
        sum_rows[last_grid](partial, out, parts, columns, parts, *last, num_warps=4)
        return out

    return step
