"""Fakes speed by keeping every answer, by a sum over all values of each input."""

import torch
from torch import Tensor

from ch01.baseline_remembered_checksum import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    known: dict[tuple[float, float], Tensor] = {}

    def step() -> Tensor:
        key = float(a.sum()), float(b.sum())
        if key not in known:
            known[key] = torch.matmul(a, b)
        return out.copy_(known[key])

    return step
