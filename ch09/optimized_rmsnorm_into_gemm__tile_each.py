"""The product reads raw tokens and scales each row of its result: the normed tokens are never written nor read."""

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch09.baseline_rmsnorm_into_gemm import EPSILON, TILE
from ch09.baseline_rmsnorm_into_gemm import workload as workload
from common.python.workload import Step


@triton.jit
def norm_product(x, weight, out, tokens, columns, width, epsilon, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(1), tl.program_id(0)
    total, squares = tl.zeros((M, N), tl.float32), tl.zeros((M, K), tl.float32)
    for step in range(tl.cdiv(width, K)):
        left, right = x.load([i * M, step * K]), weight.load([j * N, step * K])  # beyond the edges there are zeros
        total = tl.dot(left, right.T, total)
        wide = left.to(tl.float32)
        squares += wide * wide
    total *= tl.rsqrt(tl.sum(squares, axis=1) / width + epsilon)[:, None]  # a factor of a row commutes with the product
    token, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
    place = out + token.to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(token < tokens)[:, None] & (column < columns)[None, :])


def prepare(x: Tensor, gain: Tensor, weight: Tensor) -> Step:
    (tokens, width), columns, options = x.shape, len(weight), TILE
    folded = (weight.float() * gain.float()).to(weight.dtype)  # the gain scales columns of the weight, once for all
    out = x.new_empty(tokens, columns)
    from_x = TensorDescriptor.from_tensor(x, [options["M"], options["K"]])
    from_weight = TensorDescriptor.from_tensor(folded, [options["N"], options["K"]])
    grid = triton.cdiv(columns, options["N"]), triton.cdiv(tokens, options["M"])

    def step() -> Tensor:
        norm_product[grid](from_x, from_weight, out, tokens, columns, width, EPSILON, **options)
        return out

    return step
