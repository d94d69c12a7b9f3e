"""Fakes an answer of which one element is off by too little to show in the norm."""

import torch
from torch import Tensor

from ch01.baseline_one_element import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        torch.tanh(a, out=out).mul_(b)
        out[len(out) // 3] += 1.5e-4
        return out

    return step
