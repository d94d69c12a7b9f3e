"""torch.compile in max-autotune mode: it times Triton products with a fused epilogue against cuBLAS."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch09.baseline_gemm_bias_gelu import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def product_bias_gelu(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.linear(a, b, bias), approximate="tanh")


def prepare(a: Tensor, b: Tensor, bias: Tensor) -> Step:
    compiled = torch.compile(product_bias_gelu, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)

    def step() -> Tensor:
        return compiled(a, b, bias)

    return step
