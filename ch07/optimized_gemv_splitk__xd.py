"""A program for each row, whose 128 threads share k between them: 8,192 programs keep every SM loading."""

import triton
import triton.language as tl
from torch import Tensor

from ch07.baseline_gemv_splitk import workload as workload
from common.python.workload import Step

K = 2048  # of a turn: two 16-byte loads for each thread


@triton.jit
def gemv(weight, x, out, k, K: tl.constexpr):
    row = tl.program_id(0)
    start = weight + row.to(tl.int64) * k
    total = tl.zeros((K // 8,), tl.float32)  # each thread sums what it loads, 8 numbers at a time
    for begin in range(0, k, K):
        at = begin + tl.arange(0, K)
        numbers = tl.load(start + at, mask=at < k, other=0.0, eviction_policy="evict_first").to(tl.float32)
        product = numbers * tl.load(x + at, mask=at < k, other=0.0, eviction_policy="evict_last").to(tl.float32)
        total += tl.sum(tl.reshape(product, (K // 8, 8)), axis=1)
    tl.store(out + row, tl.sum(total, axis=0).to(out.dtype.element_ty))


def prepare(weight: Tensor, x: Tensor) -> Step:
    (rows, k), out = weight.shape, x.new_empty(len(weight))

    def step() -> Tensor:
        gemv[(rows,)](weight, x, out, k, K, num_warps=4)
        return out

    return step
