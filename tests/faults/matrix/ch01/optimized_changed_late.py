"""Leaves float64 as the default dtype after proof."""

import torch
from torch import Tensor

from ch01.baseline_changed_late import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    calls = iter([False] * 9)

    def step() -> Tensor:
        if next(calls, True):
            torch.set_default_dtype(torch.float64)
        return a * 2

    return step
