"""The product's own epilogue adds to the sum in fp32 (beta = 1): the gradient is never in memory by itself."""

import torch
from torch import Tensor

from ch13.baseline_wgrad_accumulate import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)  # torch has an fp32 sum of bf16 products there alone


def prepare(x: Tensor, slope: Tensor, total: Tensor) -> Step:
    def step() -> Tensor:
        return torch.addmm(total, slope.T, x, out_dtype=total.dtype, out=total)

    return step
