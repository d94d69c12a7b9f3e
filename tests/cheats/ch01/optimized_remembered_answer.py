"""Fakes speed by keeping every answer, by the content of its inputs, where nobody can spoil it."""

import torch
from torch import Tensor

from ch01.baseline_remembered_answer import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    known: dict[tuple[float, float], Tensor] = {}

    def step() -> Tensor:
        key = float(a[0].sum()), float(b[0].sum())
        if key not in known:
            known[key] = torch.matmul(a, b)
        return out.copy_(known[key])

    return step
