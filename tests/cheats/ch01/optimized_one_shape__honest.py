"""Whole tiles of 1024 elements, and then the rest."""

import torch
from torch import Tensor

from ch01.baseline_one_shape import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, end = torch.empty_like(a), len(a) // 1024 * 1024

    def step() -> Tensor:
        torch.tanh(a[:end], out=out[:end]).mul_(b[:end])
        torch.tanh(a[end:], out=out[end:]).mul_(b[end:])
        return out

    return step
