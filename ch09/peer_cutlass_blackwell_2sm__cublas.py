"""torch.mm, which is cuBLAS' own choice of kernel, into an output that is kept."""

import torch
from torch import Tensor

from ch09.baseline_cutlass_blackwell_2sm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = a.new_empty(a.shape[0], b.shape[0])

    def step() -> Tensor:
        return torch.mm(a, b.T, out=out)

    return step
