"""Experiment: persistent programs fed by TMA, in rows of tiles."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch07.baseline_tile_swizzle_matmul import tile
from ch07.baseline_tile_swizzle_matmul import workload as workload
from common.python.workload import Step

GROUP = 1


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
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
    sides = options["M"], options["N"], options["K"]
    from_a = TensorDescriptor.from_tensor(a, [sides[0], sides[2]])
    from_b = TensorDescriptor.from_tensor(b, [sides[1], sides[2]])
    into = TensorDescriptor.from_tensor(out, [sides[0], sides[1]])
    tiles = triton.cdiv(m, sides[0]) * triton.cdiv(n, sides[1])
    most = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count

    def step() -> Tensor:
        product[(min(most, tiles),)](from_a, from_b, into, m, n, k, GROUP=GROUP, **options)
        return out

    return step
