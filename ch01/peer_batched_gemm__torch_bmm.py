"""torch.bmm: PyTorch's own call of the batched cuBLAS product."""

import torch
from torch import Tensor, empty_like

from ch01.baseline_batched_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = empty_like(a)

    def step() -> Tensor:
        return torch.bmm(a, b, out=out)

    return step
