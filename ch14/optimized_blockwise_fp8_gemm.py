"""TMA brings the rows' scales with each stage of codes: the warpgroups that multiply do not load them from L2."""

import torch
from torch import Tensor

from ch14.baseline_blockwise_fp8_gemm import BLOCK
from ch14.baseline_blockwise_fp8_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])
TILE = 256  # rows of the kernel's tiles


def prepare(x: Tensor, codes: Tensor, by_block: Tensor) -> Step:
    (m, k), n, linear = x.shape, len(codes), load_cuda(__file__, "linear")
    out, x_codes = x.new_empty(m, n), torch.empty_like(x, dtype=codes.dtype)
    x_scales = by_block.new_zeros(k // BLOCK, -(-m // TILE) * TILE)  # TMA brings those of a whole tile

    def step() -> Tensor:
        linear(x, codes, by_block, out, x_codes, x_scales, m, n, k)
        return out

    return step
