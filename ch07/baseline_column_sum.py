"""One program for each block of columns walks down all rows: 64 programs on 132 multiprocessors."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Step, Workload

ROWS, COLUMNS = 64, 128  # of a tile: 256 bytes of each row, eight 16-byte loads in flight for each of 128 threads

workload = Workload(
    inputs=lambda draw, rows, columns: {"grad": draw.normal(rows, columns, dtype=torch.bfloat16)},
    reference=lambda grad: grad.sum(0),  # the gradient of a bias, over all tokens
    cost=lambda rows, columns: Cost(read=2 * rows * columns, write=4 * columns),
    sizes={"bench": {"rows": 65536, "columns": 8192}, "test": {"rows": 1061, "columns": 333}},
    tolerance=1e-5,  # bf16 is added up in fp32 and the sum stays in fp32
)


@triton.jit
def sum_rows(grad, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    tile = grad + row[:, None] * columns + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, rows, ROWS):
        mask = (first + row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(tile, mask=mask, other=0.0).to(tl.float32)
        tile += ROWS * columns
    tl.store(out + column, tl.sum(total, axis=0), mask=column < columns)


def prepare(grad: Tensor) -> Step:
    rows, columns = grad.shape
    out = grad.new_empty(columns, dtype=torch.float32)

    def step() -> Tensor:
        sum_rows[(triton.cdiv(columns, COLUMNS),)](grad, out, rows, columns, ROWS, COLUMNS, num_warps=4)
        return out

    return step
