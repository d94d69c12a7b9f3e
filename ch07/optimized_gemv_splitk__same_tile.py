"""k is split into 52 parts: 3,328 programs keep every SM loading, and the last one of each tile adds up its parts."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch07.baseline_gemv_splitk import TILE, products
from ch07.baseline_gemv_splitk import workload as workload
from common.python.workload import Step

PART = 1024  # of k for each program: eight tiles of loads


@triton.jit
def gemv(
    weight,
    x,
    partial,
    arrived,
    out,
    rows,
    k,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
):
    part, tile = tl.program_id(0), tl.program_id(1)
    row = tile * ROWS + tl.arange(0, ROWS)
    total = products(weight, x, row, part * PART, tl.minimum(part * PART + PART, k), rows, k, ROWS, K)
    place = partial + tile * PARTS * ROWS + tl.arange(0, ROWS)  # of the tile's first part; the others follow
    tl.store(place + part * ROWS, total)
    tl.debug_barrier()  # all threads have stored before one of them counts the program in
    if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == PARTS - 1:
        total = tl.zeros((ROWS,), tl.float32)
        for other in range(PARTS):
            total += tl.load(place + other * ROWS, cache_modifier=".cg")  # from L2, where the others' stores are
        tl.store(out + row, total.to(out.dtype.element_ty), mask=row < rows)
        tl.store(arrived + tile, 0)  # for the next step


def prepare(weight: Tensor, x: Tensor) -> Step:
    (rows, k), out = weight.shape, x.new_empty(len(weight))
    parts, tiles = triton.cdiv(k, PART), triton.cdiv(rows, TILE["ROWS"])
    partial = x.new_empty(tiles, parts, TILE["ROWS"], dtype=torch.float32)
    arrived = x.new_zeros(tiles, dtype=torch.int32)

    def step() -> Tensor:
        gemv[(parts, tiles)](weight, x, partial, arrived, out, rows, k, **TILE, PART=PART, PARTS=parts, num_warps=8)
        return out

    return step
