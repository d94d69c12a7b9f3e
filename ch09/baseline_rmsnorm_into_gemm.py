"""One kernel writes the normalized tokens to memory, and a second multiplies what it reads from there."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

EPSILON = 1e-5


def inputs(draw: Draw, tokens: int, width: int, columns: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "x": draw.normal(tokens, width, dtype=element),
        "gain": draw.uniform(width, low=0.75, high=1.25, dtype=element),
        "weight": draw.normal(columns, width, std=width**-0.5, dtype=element),
    }


def reference(x: Tensor, gain: Tensor, weight: Tensor) -> Tensor:
    return (x * (x.square().mean(dim=1, keepdim=True) + EPSILON).rsqrt() * gain) @ weight.T


def cost(tokens: int, width: int, columns: int, dtype: str) -> Cost:
    read = 2 * (tokens * width + columns * width)  # the gain can be in the weight
    return Cost(read=read, write=2 * tokens * columns, flops=2 * tokens * columns * width, dtype="bf16")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A head that scores 64 labels, or experts, for each token of a batch. The tokens are 537 MB, and all else 5 MB.
        "bench": {"tokens": 32768, "width": 8192, "columns": 64, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; TMA copies rows that begin at multiples of 16 bytes
        "test": {"tokens": 75, "width": 136, "columns": 296, "dtype": "float16"},
    },
    tolerance=6e-3,  # the result and one operand are rounded to bf16, each by 0.17% on average
    frozen=("gain", "weight"),
)


@triton.jit
def normalize(x, gain, out, width, epsilon, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < width
    start = tl.program_id(0).to(tl.int64) * width
    row = tl.load(x + start + at, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, axis=0) / width + epsilon)
    tl.store(out + start + at, row * scale * tl.load(gain + at, mask=mask, other=0.0).to(tl.float32), mask=mask)


@triton.jit
def product(x, weight, out, tokens, columns, width, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(1), tl.program_id(0)
    total = tl.zeros((M, N), tl.float32)
    for step in range(tl.cdiv(width, K)):
        left, right = x.load([i * M, step * K]), weight.load([j * N, step * K])  # beyond the edges there are zeros
        total = tl.dot(left, right.T, total)
    token, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
    place = out + token.to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(token < tokens)[:, None] & (column < columns)[None, :])


# 64 tokens and all 64 columns. Three stages of 128 numbers of each are 96 KB: two programs fit on an H200's SM.
TILE = {"M": 64, "N": 64, "K": 128, "num_warps": 4, "num_stages": 3}


def prepare(x: Tensor, gain: Tensor, weight: Tensor) -> Step:
    (tokens, width), columns, options = x.shape, len(weight), TILE
    normed, out = torch.empty_like(x), x.new_empty(tokens, columns)
    from_normed = TensorDescriptor.from_tensor(normed, [options["M"], options["K"]])
    from_weight = TensorDescriptor.from_tensor(weight, [options["N"], options["K"]])
    grid = triton.cdiv(columns, options["N"]), triton.cdiv(tokens, options["M"])
    block = triton.next_power_of_2(width)

    def step() -> Tensor:
        normalize[(tokens,)](x, gain, normed, width, EPSILON, BLOCK=block, num_warps=8)
        product[grid](from_normed, from_weight, out, tokens, columns, width, **options)
        return out

    return step
