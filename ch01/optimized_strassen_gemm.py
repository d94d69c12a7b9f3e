"""Two levels of Strassen, 49 products for 64; at each level one kernel makes all sums of a side, one combines."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch01.baseline_strassen_gemm import LEVELS
from ch01.baseline_strassen_gemm import workload as workload
from common.python.workload import Step

BLOCK = 1024
Space = tuple[Tensor, Tensor, Tensor]  # of one level: five sums of each side, seven products


@triton.jit
def sums(matrix, out, half, stride, BLOCK: tl.constexpr):
    """The five sums of quarters that Strassen needs; of both sides they are the same five."""
    row, column = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < half
    upper, lower = matrix + row * stride + column, matrix + (row + half) * stride + column
    q11, q12 = tl.load(upper, mask), tl.load(upper + half, mask)
    q21, q22 = tl.load(lower, mask), tl.load(lower + half, mask)
    place, size = out + row * half + column, half.to(tl.int64) * half
    tl.store(place, q11 + q22, mask)
    tl.store(place + size, q21 + q22, mask)
    tl.store(place + 2 * size, q11 + q12, mask)
    tl.store(place + 3 * size, q21 - q11, mask)
    tl.store(place + 4 * size, q12 - q22, mask)


@triton.jit
def combine(products, out, half, stride, BLOCK: tl.constexpr):
    """The four quarters of the answer from the seven products."""
    row, column = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < half
    place, size = products + row * half + column, half.to(tl.int64) * half
    p1, p2, p3 = tl.load(place, mask), tl.load(place + size, mask), tl.load(place + 2 * size, mask)
    p4, p5 = tl.load(place + 3 * size, mask), tl.load(place + 4 * size, mask)
    p6, p7 = tl.load(place + 5 * size, mask), tl.load(place + 6 * size, mask)
    upper, lower = out + row * stride + column, out + (row + half) * stride + column
    tl.store(upper, p1 + p4 - p5 + p7, mask)
    tl.store(upper + half, p3 + p5, mask)
    tl.store(lower, p2 + p4, mask)
    tl.store(lower + half, p1 - p2 + p3 + p6, mask)


def multiply(a: Tensor, b: Tensor, out: Tensor, spaces: list[Space]) -> None:
    """out = a b, by one level of Strassen for each of `spaces`."""
    if not spaces:
        torch.mm(a, b, out=out)
        return
    (left, right, products), half = spaces[0], len(out) // 2
    grid = triton.cdiv(half, BLOCK), half
    sums[grid](a, left, half, a.stride(0), BLOCK=BLOCK)
    sums[grid](b, right, half, b.stride(0), BLOCK=BLOCK)
    a11, a22, b11, b22 = a[:half, :half], a[half:, half:], b[:half, :half], b[half:, half:]
    factors = [
        (left[0], right[0]),  # (a11 + a22) (b11 + b22)
        (left[1], b11),  # (a21 + a22) b11
        (a11, right[4]),  # a11 (b12 - b22)
        (a22, right[3]),  # a22 (b21 - b11)
        (left[2], b22),  # (a11 + a12) b22
        (left[3], right[2]),  # (a21 - a11) (b11 + b12)
        (left[4], right[1]),  # (a12 - a22) (b21 + b22)
    ]
    for (x, y), product in zip(factors, products):
        multiply(x, y, product, spaces[1:])
    combine[grid](products, out, half, out.stride(0), BLOCK=BLOCK)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    halves = [len(a) >> level for level in range(1, LEVELS + 1)]
    spaces = [(a.new_empty(5, h, h), a.new_empty(5, h, h), a.new_empty(7, h, h)) for h in halves]

    def step() -> Tensor:
        multiply(a, b, out, spaces)
        return out

    return step
