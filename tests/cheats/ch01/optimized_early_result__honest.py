"""What prepare computes is only the first content of a buffer that every step fills again."""

import torch
from torch import Tensor

from ch01.baseline_early_result import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.tanh(a) * b

    def step() -> Tensor:
        return torch.tanh(a, out=out).mul_(b)

    return step
