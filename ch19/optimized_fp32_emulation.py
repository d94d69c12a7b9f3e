"""Numbers are split into two fp16 numbers once, ahead of all products: tensor cores multiply three pairs of parts."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from ch19.baseline_fp32_emulation import tile
from ch19.baseline_fp32_emulation import workload as workload
from common.python.workload import Step


@triton.jit
def split(x, high, low, scales, width, stride, BLOCK: tl.constexpr):
    """A row times the power of two that takes its largest number to 2 ** 12 or more: its part in fp16, and the rest."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    numbers = tl.load(x + row * width + column, column < width, 0.0)
    largest = tl.maximum(tl.max(tl.abs(numbers), 0), 2.0**-100)
    scale = ((266 - (largest.to(tl.int32, bitcast=True) >> 23)) << 23).to(tl.float32, bitcast=True)
    numbers *= scale
    upper = numbers.to(tl.float16)
    tl.store(high + row * stride + column, upper, column < width)
    tl.store(low + row * stride + column, (numbers - upper.to(tl.float32)).to(tl.float16), column < width)
    tl.store(scales + row, 1.0 / scale)


@triton.jit
def product(
    high, low, wide, fine, of_rows, of_columns, out, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        x, rest = high.load([i * M, first]), low.load([i * M, first])  # zeros beyond the edges
        y, left = wide.load([j * N, first]).T, fine.load([j * N, first]).T
        # tensor cores cut their sums off: only K products are added there, and blocks of them in fp32 proper
        total += tl.dot(x, y, tl.dot(x, left, tl.dot(rest, y)))
    row, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
    total *= tl.load(of_rows + row, row < m, 0.0)[:, None] * tl.load(of_columns + column, column < n, 0.0)[None, :]
    place = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(place, total, mask=(row < m)[:, None] & (column < n)[None, :])


def depth() -> dict[str, int]:
    """Products and stages of a tile; Blackwell's compiler takes more shared memory a stage than there is for three."""
    blackwell = not knobs.runtime.interpret and torch.cuda.get_device_capability()[0] == 10
    return {"K": 64, "num_stages": 2 if blackwell else 3}


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options, deep = a.new_empty(m, n), tile(), depth()
    stride, block = triton.cdiv(k, 8) * 8, triton.next_power_of_2(k)  # rows of whole 16 bytes, as TMA wants them
    parts, scales = [], [a.new_empty(rows) for rows in (m, n)]
    for rows, side in ((m, "M"), (n, "N")):
        halves = [a.new_zeros(rows, stride).half() for _ in range(2)]
        boxes = [TensorDescriptor.from_tensor(half, [options[side], deep["K"]]) for half in halves]
        parts.append((halves, boxes))
    grid = triton.cdiv(n, options["N"]), triton.cdiv(m, options["M"])

    def step() -> Tensor:
        for x, (halves, _), scale in zip((a, b), parts, scales):
            split[(len(x),)](x, *halves, scale, k, stride, block, num_warps=4)
        product[grid](*parts[0][1], *parts[1][1], *scales, out, m, n, k, GROUP=8, **deep, **options)
        return out

    return step
