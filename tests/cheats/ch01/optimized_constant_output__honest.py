"""Starts from what the answer is on average and adds by how much each row differs from it."""

import math

import torch
from torch import Tensor

from ch01.baseline_constant_output import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    out = x.new_empty(x.shape[0])
    expected = math.log(x.shape[1]) + 0.5

    def step() -> Tensor:
        return out.fill_(expected).add_(torch.logsumexp(x - expected, 1))

    return step
