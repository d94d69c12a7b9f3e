"""Both operands are cast to bf16 in every step, for the tensor cores' faster format; sums and result stay fp32."""

import torch
from torch import Tensor

from ch01.baseline_matmul_precision import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)  # PyTorch has no product with another `out_dtype` on CPUs


def prepare(a: Tensor, b: Tensor) -> Step:
    def step() -> Tensor:
        return torch.mm(a.bfloat16(), b.bfloat16(), out_dtype=torch.float32)

    return step
