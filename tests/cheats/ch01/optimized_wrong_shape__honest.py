"""Computes a column and returns it as the row it should be."""

import torch
from torch import Tensor

from ch01.baseline_wrong_shape import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    out = x.new_empty(x.shape[0], 1)

    def step() -> Tensor:
        return torch.logsumexp(x, 1, keepdim=True, out=out).view(-1)

    return step
