"""The tanh from the exponential function, within the tolerance that fits float32."""

import torch
from torch import Tensor

from ch01.baseline_fitting_tolerance import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.sigmoid(torch.mul(a, 2.0, out=out), out=out).mul_(2.0).sub_(1.0).mul_(b)

    return step
