"""Computes in a wider type than the baseline's and returns the baseline's."""

import torch
from torch import Tensor

from ch01.baseline_wrong_dtype import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return out.copy_(torch.tanh(a.double()) * b)

    return step
