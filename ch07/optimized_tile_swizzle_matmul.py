"""Eight rows of tiles take turns, so that programs which run together share tiles of a and of b in the L2 cache."""

import triton
import triton.language as tl
from torch import Tensor

from ch07.baseline_tile_swizzle_matmul import tile
from ch07.baseline_tile_swizzle_matmul import workload as workload
from common.python.workload import Step

GROUP = 8  # rows of tiles: of 132 programs, eight read the same tile of b, and 16 or 17 the same tile of a


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    i, j = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    i, j = tl.swizzle2d(i, j, tiles_m, tiles_n, GROUP)
    row, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
    left, right = a + row.to(tl.int64)[:, None] * k, b + column.to(tl.int64)[None, :] * k
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        at = first + tl.arange(0, K)
        x = tl.load(left + at[None, :], mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
        y = tl.load(right + at[:, None], mask=(at < k)[:, None] & (column < n)[None, :], other=0.0)
        total = tl.dot(x, y, total)
    place = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(row < m)[:, None] & (column < n)[None, :])


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    grid = (triton.cdiv(m, options["M"]) * triton.cdiv(n, options["N"]),)

    def step() -> Tensor:
        product[grid](a, b, out, m, n, k, GROUP=GROUP, **options)
        return out

    return step
