"""Fakes the tanh by a clamp, which a tolerance that fits float32 refuses."""

import torch
from torch import Tensor

from ch01.baseline_fitting_tolerance import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.clamp(a, -1.0, 1.0, out=out).mul_(b)

    return step
