"""torch.mm, which is cuBLAS' SGEMM: in fp32 throughout, as torch leaves TF32 off unless it is asked for."""

import torch
from torch import Tensor

from ch07.baseline_sgemm_tiling import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = a.new_empty(a.shape[0], b.shape[1])

    def step() -> Tensor:
        return torch.mm(a, b, out=out)

    return step
