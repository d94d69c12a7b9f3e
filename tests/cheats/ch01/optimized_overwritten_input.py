"""Fakes thrift by using an input as scratch memory; the next call gets another input."""

import torch
from torch import Tensor

from ch01.baseline_overwritten_input import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.mul(a.tanh_(), b, out=out)

    return step
