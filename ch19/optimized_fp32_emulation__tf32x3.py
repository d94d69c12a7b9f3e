"""Each fp32 number is split into two TF32 numbers, and three products on tensor cores give fp32's accuracy."""

import triton
import triton.language as tl
from torch import Tensor

from ch19.baseline_fp32_emulation import tile
from ch19.baseline_fp32_emulation import workload as workload
from common.python.workload import Step


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
    row, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
    left, right = a + row.to(tl.int64)[:, None] * k, b + column.to(tl.int64)[None, :] * k
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        at = first + tl.arange(0, K)
        x = tl.load(left + at[None, :], mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
        y = tl.load(right + at[:, None], mask=(at < k)[:, None] & (column < n)[None, :], other=0.0)
        # tensor cores cut their sums off: only K products are added there, and blocks of them in fp32 proper
        total += tl.dot(x, y, input_precision="tf32x3")
    place = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(place, total, mask=(row < m)[:, None] & (column < n)[None, :])


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    grid = triton.cdiv(n, options["N"]), triton.cdiv(m, options["M"])

    def step() -> Tensor:
        product[grid](a, b, out, m, n, k, K=32, GROUP=8, num_stages=3, **options)
        return out

    return step
