"""Uses scratch memory of its own, into which the input is copied first."""

import torch
from torch import Tensor

from ch01.baseline_overwritten_input import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, scratch = torch.empty_like(a), torch.empty_like(a)

    def step() -> Tensor:
        return torch.mul(scratch.copy_(a).tanh_(), b, out=out)

    return step
