"""64 programs each walk along all of k for their 128 rows: half of the SMs, and one tile of loads on each of them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

TILE = {"ROWS": 128, "K": 128}  # 32 KB of weights


def inputs(draw: Draw, rows: int, k: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {"weight": draw.normal(rows, k, dtype=element), "x": draw.normal(k, dtype=element)}


workload = Workload(
    inputs=inputs,
    reference=lambda weight, x: weight @ x,
    cost=lambda rows, k, dtype: Cost(read=2 * (rows * k + k), write=2 * rows, flops=2 * rows * k, dtype="bf16"),
    sizes={
        # The down projection of a 405B Llama for one token, half of its rows, as one of two GPUs has them: 872 MB.
        "bench": {"rows": 8192, "k": 53248, "dtype": "bfloat16"},
        # float16 because Triton's interpreter cuts to bf16 where a GPU rounds; the kernels take what x is made of.
        "test": {"rows": 139, "k": 9001, "dtype": "float16"},
    },
    tolerance=4e-3,  # of rounding the output to bf16
)


@triton.jit
def products(weight, x, row, first, last, rows, k, ROWS: tl.constexpr, K: tl.constexpr):
    """The products of these rows with x from first to last, summed."""
    start = weight + row.to(tl.int64)[:, None] * k
    total = tl.zeros((ROWS, K // 8), tl.float32)  # each thread sums what it loads, 8 numbers at a time
    for begin in range(first, last, K):
        at = begin + tl.arange(0, K)
        tile = tl.load(start + at[None, :], mask=(row < rows)[:, None] & (at < k)[None, :], other=0.0)
        product = tile.to(tl.float32) * tl.load(x + at, mask=at < k, other=0.0).to(tl.float32)[None, :]
        total += tl.sum(tl.reshape(product, (ROWS, K // 8, 8)), axis=2)
    return tl.sum(total, axis=1)


@triton.jit
def gemv(weight, x, out, rows, k, ROWS: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = products(weight, x, row, 0, k, rows, k, ROWS, K)
    tl.store(out + row, total.to(out.dtype.element_ty), mask=row < rows)


def prepare(weight: Tensor, x: Tensor) -> Step:
    (rows, k), out = weight.shape, x.new_empty(len(weight))

    def step() -> Tensor:
        gemv[(triton.cdiv(rows, TILE["ROWS"]),)](weight, x, out, rows, k, **TILE, num_warps=8)
        return out

    return step
