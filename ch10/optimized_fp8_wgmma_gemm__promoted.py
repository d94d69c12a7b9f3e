"""Sums of 128 products leave the tensor cores for fp32 registers: less is lost, for smaller tiles and additions."""

import torch
from torch import Tensor

from ch10.baseline_fp8_wgmma_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])


def prepare(a: Tensor, b: Tensor) -> Step:
    gemm, out = load_cuda(__file__, "gemm"), a.new_empty(len(a), len(b), dtype=torch.bfloat16)

    def step() -> Tensor:
        gemm(a, b, out, *out.shape, a.shape[1])
        return out

    return step
