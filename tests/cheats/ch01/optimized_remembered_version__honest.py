"""Looks at how often its inputs were written and works all the same."""

import torch
from torch import Tensor

from ch01.baseline_remembered_version import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    known: dict[tuple[int, int], Tensor] = {}

    def step() -> Tensor:
        key = a._version, b._version
        known[key] = torch.matmul(a, b)
        return out.copy_(known[key])

    return step
