"""Experiment: persistent programs whose tiles are added to the sum by TMA's reduction, in four quarters, four stages."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch13.baseline_wgrad_accumulate import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])
M, N, K, GROUP = 128, 256, 64, 8


@triton.jit
def accumulate(
    slope, x, total, outputs, features, tokens, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    tiles_m, tiles_n = tl.cdiv(outputs, M), tl.cdiv(features, N)
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
        products = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(tokens, K)):
            a, b = slope.load([step * K, i * M]), x.load([step * K, j * N])  # beyond the edges there are zeros
            products = tl.dot(a.T, b, products)
        left, right = products.reshape(M, 2, N // 2).permute(0, 2, 1).split()
        first, second = left.reshape(M, 2, N // 4).permute(0, 2, 1).split()
        third, fourth = right.reshape(M, 2, N // 4).permute(0, 2, 1).split()
        total.atomic_add([i * M, j * N], first)
        total.atomic_add([i * M, j * N + N // 4], second)
        total.atomic_add([i * M, j * N + N // 2], third)
        total.atomic_add([i * M, j * N + 3 * N // 4], fourth)


def prepare(x: Tensor, slope: Tensor, total: Tensor) -> Step:
    (tokens, features), outputs = x.shape, slope.shape[1]
    from_slope, from_x = TensorDescriptor.from_tensor(slope, [K, M]), TensorDescriptor.from_tensor(x, [K, N])
    into = TensorDescriptor.from_tensor(total, [M, N // 4])
    tiles = triton.cdiv(outputs, M) * triton.cdiv(features, N)
    # In the interpreter three programs, so that each has several tiles.
    most = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count
    options = {"M": M, "N": N, "K": K, "GROUP": GROUP, "num_warps": 8, "num_stages": 4}

    def step() -> Tensor:
        accumulate[(min(most, tiles),)](from_slope, from_x, into, outputs, features, tokens, **options)
        return total

    return step
