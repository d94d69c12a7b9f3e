"""Each token is rounded to int8 by its largest number; the int8 product multiplies by both scales as it stores."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch13.baseline_int8_dynamic_linear import metered
from ch13.baseline_int8_dynamic_linear import workload as workload
from common.python.workload import Metered

GROUP = 8  # rows of tiles that take turns, so that what one program reads the next finds in the L2 cache


@triton.jit
def quantize(x, codes, scales, features, FEATURES: tl.constexpr):
    token, feature = tl.program_id(0).to(tl.int64), tl.arange(0, FEATURES)
    row = tl.load(x + token * features + feature, mask=feature < features, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(row), 0), 1e-20)
    rounded = tl.floor(row * (127.0 / largest) + 0.5).to(tl.int8)
    tl.store(codes + token * features + feature, rounded, mask=feature < features)
    tl.store(scales + token, largest / 127.0)


@triton.jit
def product(a, b, out, by_row, by_column, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, G: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, G)
        total = tl.zeros((M, N), tl.int32)
        for step in range(tl.cdiv(k, K)):
            x, y = a.load([i * M, step * K]), b.load([j * N, step * K])  # beyond the edges there are zeros
            total = tl.dot(x, y.T, total, out_dtype=tl.int32)
        row, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
        rows = tl.load(by_row + row, mask=row < m, other=0.0)
        columns = tl.load(by_column + column, mask=column < n, other=0.0)
        out.store([i * M, j * N], (total.to(tl.float32) * rows[:, None] * columns[None, :]).to(out.dtype))


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    (tokens, features), outputs = x.shape, len(codes)
    rounded, by_token = torch.empty_like(x, dtype=torch.int8), x.new_empty(tokens, dtype=torch.float32)
    out = x.new_empty(tokens, outputs)
    interpreted = triton.knobs.runtime.interpret
    roomy = interpreted or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    m, n, k = (128, 256, 128) if roomy else (128, 64, 64)
    a, b = TensorDescriptor.from_tensor(rounded, [m, k]), TensorDescriptor.from_tensor(codes, [n, k])
    into = TensorDescriptor.from_tensor(out, [m, n])
    tiles = triton.cdiv(tokens, m) * triton.cdiv(outputs, n)
    # In the interpreter three programs, so that each has several tiles.
    programs = min(tiles, 3 if interpreted else torch.cuda.get_device_properties().multi_processor_count)
    width = triton.next_power_of_2(features)

    def step() -> Tensor:
        quantize[(tokens,)](x, rounded, by_token, features, width, num_warps=8)
        shape = (tokens, outputs, features, m, n, k, GROUP)
        product[(programs,)](a, b, into, by_token, scales, *shape, num_warps=8, num_stages=3)
        return out

    return metered(step, x)
