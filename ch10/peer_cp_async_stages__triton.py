"""Triton's own pipeline of cp.async, with the same tile and stages, told to do without wgmma: mma.sync as on sm_80."""

import os
from unittest.mock import patch

import triton
import triton.language as tl
from torch import Tensor

from ch10.baseline_cp_async_stages import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
OLDER = {"DISABLE_MMA_V3": "1", "DISABLE_MMA_V5": "1"}  # Triton's compiler reads these: no wgmma, no tcgen05


@triton.jit
def product(
    a, b, out, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
    row, column, depth = i * M + tl.arange(0, M), j * N + tl.arange(0, N), tl.arange(0, K)
    from_a = a + (row % m).to(tl.int64)[:, None] * k + depth[None, :]  # rows beyond the end are others again
    from_b = b + (column % n).to(tl.int64)[None, :] * k + depth[:, None]
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        if WHOLE:
            x, y = tl.load(from_a + start), tl.load(from_b + start)
        else:
            x = tl.load(from_a + start, depth[None, :] < k - start, 0.0)
            y = tl.load(from_b + start, depth[:, None] < k - start, 0.0)
        total = tl.dot(x, y, total)
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(out + row.to(tl.int64)[:, None] * n + column[None, :], total.to(out.dtype.element_ty), inside)


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out = a.new_empty(m, n)
    tile = {"M": 128, "N": 256, "K": 32}
    grid = triton.cdiv(n, tile["N"]), triton.cdiv(m, tile["M"])

    def step() -> Tensor:
        product[grid](a, b, out, m, n, k, **tile, GROUP=8, WHOLE=k % tile["K"] == 0, num_warps=8, num_stages=4)
        return out

    with patch.dict(os.environ, OLDER):
        step()  # which compiles the kernel; later calls find it
    return step
