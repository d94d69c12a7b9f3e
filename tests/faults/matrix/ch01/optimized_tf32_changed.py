"""Leaves TF32 allowed in matrix products."""

import torch
from torch import Tensor

from ch01.baseline_tf32_changed import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        return a * 2

    return step
