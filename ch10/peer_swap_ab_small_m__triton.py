"""Triton with weights on the left, widened in registers: tl.dot of [128, K] with [K, 16] is wgmma's m64n16."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch10.baseline_swap_ab_small_m import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)
TILE = {"M": 16, "N": 128, "K": 128}


@triton.jit
def multiply(x, weight, scales, out, tokens, features, outputs, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    left = tl.program_id(0) * N
    total = tl.zeros((N, M), tl.float32)
    for step in range(tl.cdiv(features, K)):
        a, b = weight.load([left, step * K]), x.load([0, step * K])  # beyond the edges there are zeros
        total = tl.dot(a.to(tl.float16), b.T, total)
    output, token = left + tl.arange(0, N), tl.arange(0, M)
    scaled = total * tl.load(scales + output, output < outputs, 0.0)[:, None]
    inside = (output < outputs)[:, None] & (token < tokens)[None, :]
    tl.store(out + token[None, :] * outputs + output[:, None], scaled.to(tl.float16), inside)


def prepare(x: Tensor, weight: Tensor, scales: Tensor) -> Step:
    (tokens, features), outputs, options = x.shape, len(weight), {"num_warps": 4, "num_stages": 6}
    from_x = TensorDescriptor.from_tensor(x, [TILE["M"], TILE["K"]])
    from_weight = TensorDescriptor.from_tensor(weight, [TILE["N"], TILE["K"]])
    out, programs = torch.empty(tokens, outputs, dtype=x.dtype, device=x.device), triton.cdiv(outputs, TILE["N"])

    def step() -> Tensor:
        multiply[(programs,)](from_x, from_weight, scales, out, tokens, features, outputs, **TILE, **options)
        return out

    return step
