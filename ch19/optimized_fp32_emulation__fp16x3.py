"""Numbers of like size are split in two fp16 numbers: three products too, at twice the rate of TF32."""

import triton
import triton.language as tl
from torch import Tensor

from ch19.baseline_fp32_emulation import tile
from ch19.baseline_fp32_emulation import workload as workload
from common.python.workload import Step

SCALE = tl.constexpr(256.0)  # up to 255 fits, and what is left over of 1 is no subnormal number


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
        x, y = x * SCALE, y * SCALE
        high, wide = x.to(tl.float16), y.to(tl.float16)
        low, fine = (x - high.to(tl.float32)).to(tl.float16), (y - wide.to(tl.float32)).to(tl.float16)
        total += tl.dot(high, wide, tl.dot(high, fine, tl.dot(low, wide)))
    place = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(place, total / (SCALE * SCALE), mask=(row < m)[:, None] & (column < n)[None, :])


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    grid = triton.cdiv(n, options["N"]), triton.cdiv(m, options["M"])

    def step() -> Tensor:
        product[grid](a, b, out, m, n, k, K=32, GROUP=8, num_stages=3, **options)
        return out

    return step
