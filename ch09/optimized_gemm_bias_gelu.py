"""Bias and GELU are applied to the accumulator in registers, before the product's only store."""

import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_gemm_bias_gelu import descriptors, gelu
from ch09.baseline_gemm_bias_gelu import workload as workload
from common.python.workload import Step


@triton.jit
def product_bias_gelu(
    a, b, out, bias, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, FAST: tl.constexpr
):
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(k, K)):
            x, y = a.load([i * M, step * K]), b.load([j * N, step * K])  # beyond the edges there are zeros
            total = tl.dot(x, y.T, total)
        column = j * N + tl.arange(0, N)
        total += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
        out.store([i * M, j * N], gelu(total, FAST).to(out.dtype))


def prepare(a: Tensor, b: Tensor, bias: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out = a.new_empty(m, n)
    grid, views, options = descriptors(a, b, out)
    fast = not triton.knobs.runtime.interpret

    def step() -> Tensor:
        product_bias_gelu[grid](*views, bias, m, n, k, FAST=fast, **options)
        return out

    return step
