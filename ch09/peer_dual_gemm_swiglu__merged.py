"""One cuBLAS product with both weights stacked ahead, and SwiGLU by torch.compile."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from ch09.baseline_dual_gemm_swiglu import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def swiglu(both: Tensor) -> Tensor:
    gated, upward = both.chunk(2, dim=1)
    return silu(gated) * upward


def prepare(x: Tensor, gate: Tensor, up: Tensor) -> Step:
    compiled = torch.compile(swiglu, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
    stacked = torch.cat([gate, up])
    both = x.new_empty(len(x), len(stacked))

    def step() -> Tensor:
        return compiled(torch.mm(x, stacked.T, out=both))

    return step
