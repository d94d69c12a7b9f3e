"""torch.mv, which hands a bf16 matrix and vector to cuBLAS."""

import torch
from torch import Tensor

from ch07.baseline_gemv_splitk import workload as workload
from common.python.workload import Step


def prepare(weight: Tensor, x: Tensor) -> Step:
    out = x.new_empty(len(weight))

    def step() -> Tensor:
        return torch.mv(weight, x, out=out)

    return step
