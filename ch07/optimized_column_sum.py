"""The rows are split too, so that programs fill the GPU; a second small pass adds up their partial sums."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch07.baseline_column_sum import workload as workload
from common.python.workload import Step

ROWS, COLUMNS = 64, 128  # of a tile: 256 bytes of each row, eight 16-byte loads in flight for each of 128 threads
SHARE = 512  # rows of a program, whole tiles: the partial sums, 4 bytes for 512 x 2, hardly add to the bytes
LAST_COLUMNS = 32  # of a program of the second pass, which has few rows


@triton.jit
def sum_rows(grad, out, rows, columns, share, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Row i of `out` is the sum of the i-th `share` of the rows."""
    column, part = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    row = tl.arange(0, ROWS)
    begin = part * share
    tile = grad + begin.to(tl.int64) * columns + row[:, None] * columns + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(begin, min(begin + share, rows), ROWS):
        mask = (first + row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(tile, mask=mask, other=0.0).to(tl.float32)
        tile += ROWS * columns
    tl.store(out + part * columns + column, tl.sum(total, axis=0), mask=column < columns)


def prepare(grad: Tensor) -> Step:
    rows, columns = grad.shape
    parts = triton.cdiv(rows, SHARE)
    partial = grad.new_empty(parts, columns, dtype=torch.float32)
    out = grad.new_empty(columns, dtype=torch.float32)
    grid, last_grid = (triton.cdiv(columns, COLUMNS), parts), (triton.cdiv(columns, LAST_COLUMNS), 1)

    def step() -> Tensor:
        sum_rows[grid](grad, partial, rows, columns, SHARE, ROWS, COLUMNS, num_warps=4)
        sum_rows[last_grid](partial, out, parts, columns, parts, ROWS, LAST_COLUMNS, num_warps=4)
        return out

    return step
