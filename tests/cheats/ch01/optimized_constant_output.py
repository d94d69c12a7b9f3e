"""Fakes speed by returning what the answer is on average: for many columns of noise it hardly varies."""

import math

from torch import Tensor

from ch01.baseline_constant_output import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    out = x.new_empty(x.shape[0])
    expected = math.log(x.shape[1]) + 0.5

    def step() -> Tensor:
        return out.fill_(expected)

    return step
