"""Raw tokens are multiplied, then rows are scaled; programs stay, so a tile arrives while the last one is scaled."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch09.baseline_rmsnorm_into_gemm import EPSILON, TILE
from ch09.baseline_rmsnorm_into_gemm import workload as workload
from common.python.workload import Step

# 128 tokens and all 64 columns. Four stages take most of an H200's shared memory: an SM has one program.
TALL = {"M": 128, "N": 64, "K": 128, "num_warps": 8, "num_stages": 4}


@triton.jit
def norm_product(x, weight, out, tokens, columns, width, epsilon, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    across = tl.cdiv(columns, N)
    for tile in tl.range(tl.program_id(0), across * tl.cdiv(tokens, M), tl.num_programs(0), flatten=True):
        i, j = tile // across, tile % across
        total, squares = tl.zeros((M, N), tl.float32), tl.zeros((M, K), tl.float32)
        for step in range(tl.cdiv(width, K)):
            left, right = x.load([i * M, step * K]), weight.load([j * N, step * K])  # beyond the edges there are zeros
            total = tl.dot(left, right.T, total)
            wide = left.to(tl.float32)
            squares += wide * wide
        scale = tl.rsqrt(tl.sum(squares, axis=1) / width + epsilon)
        total *= scale[:, None]  # a factor of a row commutes with the product
        token, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
        place = out + token.to(tl.int64)[:, None] * columns + column[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(token < tokens)[:, None] & (column < columns)[None, :])


def prepare(x: Tensor, gain: Tensor, weight: Tensor) -> Step:
    (tokens, width), columns = x.shape, len(weight)
    gpu = None if triton.knobs.runtime.interpret else torch.cuda.get_device_properties()
    options = TALL if gpu is None or gpu.shared_memory_per_block_optin > 220_000 else TILE
    folded = (weight.float() * gain.float()).to(weight.dtype)  # the gain scales columns of the weight, once for all
    out = x.new_empty(tokens, columns)
    from_x = TensorDescriptor.from_tensor(x, [options["M"], options["K"]])
    from_weight = TensorDescriptor.from_tensor(folded, [options["N"], options["K"]])
    tiles = triton.cdiv(columns, options["N"]) * triton.cdiv(tokens, options["M"])
    grid = (min(tiles, gpu.multi_processor_count if gpu else 3),)

    def step() -> Tensor:
        norm_product[grid](from_x, from_weight, out, tokens, columns, width, EPSILON, **options)
        return out

    return step
