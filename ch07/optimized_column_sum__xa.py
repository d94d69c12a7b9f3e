"""Rows are split; the last program of a tile adds up the parts, so there is no second kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch07.baseline_column_sum import workload as workload
from common.python.workload import Step

ROWS, COLUMNS, WARPS = 64, 128, 4  # of a tile, of which a thread loads eight times 16 bytes
SHARE = 512  # rows of a program, whole tiles: the partial sums hardly add to the bytes


@triton.jit
def sum_rows(
    grad,
    partial,
    arrived,
    out,
    rows,
    columns,
    SHARE: tl.constexpr,
    PARTS: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    tile_of, part = tl.program_id(0), tl.program_id(1)
    column, row = tile_of * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    begin = part * SHARE
    tile = grad + begin.to(tl.int64) * columns + row[:, None] * columns + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(begin, min(begin + SHARE, rows), ROWS):
        mask = (first + row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(tile, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tile += ROWS * columns
    tl.store(partial + part * columns + column, tl.sum(total, axis=0), mask=column < columns)
    tl.debug_barrier()  # all threads have stored before one of them counts the program in
    if tl.atomic_add(arrived + tile_of, 1, sem="acq_rel") == PARTS - 1:
        other = tl.arange(0, PADDED)
        mask = (other < PARTS)[:, None] & (column < columns)[None, :]
        place = partial + other[:, None] * columns + column[None, :]
        sums = tl.load(place, mask=mask, other=0.0, cache_modifier=".cg")  # from L2, where the others' stores are
        tl.store(out + column, tl.sum(sums, axis=0), mask=column < columns)
        tl.store(arrived + tile_of, 0)  # for the next step


def prepare(grad: Tensor) -> Step:
    rows, columns = grad.shape
    parts, tiles = triton.cdiv(rows, SHARE), triton.cdiv(columns, COLUMNS)
    partial = grad.new_empty(parts, columns, dtype=torch.float32)
    arrived = grad.new_zeros(tiles, dtype=torch.int32)
    out = grad.new_empty(columns, dtype=torch.float32)
    sizes = {"SHARE": SHARE, "PARTS": parts, "PADDED": triton.next_power_of_2(parts)}

    def step() -> Tensor:
        sum_rows[(tiles, parts)](
            grad, partial, arrived, out, rows, columns, **sizes, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS
        )
        return out

    return step
