"""Eight rows of tiles take turns, so that programs which run together share tiles of a and of b in the L2 cache."""

import triton
import triton.language as tl
from torch import Tensor

from ch07.baseline_tile_swizzle_matmul import described, tile
from ch07.baseline_tile_swizzle_matmul import workload as workload
from common.python.workload import Step

GROUP = 8  # rows of tiles: of 132 programs, eight read the same tile of b, and 16 or 17 the same tile of a


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(k, K)):
            x, y = a.load([i * M, step * K]), b.load([j * N, step * K])  # beyond the edges there are zeros
            total = tl.dot(x, y.T, total)
        out.store([i * M, j * N], total.to(out.dtype))


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    descriptors, programs = described(a, b, out)

    def step() -> Tensor:
        product[(programs,)](*descriptors, m, n, k, GROUP=GROUP, **options)
        return out

    return step
