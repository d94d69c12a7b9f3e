"""Computes one element a second time, to the same value."""

import torch
from torch import Tensor

from ch01.baseline_one_element import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, third = torch.empty_like(a), len(a) // 3

    def step() -> Tensor:
        torch.tanh(a, out=out).mul_(b)
        out[third] = a[third].tanh() * b[third]
        return out

    return step
