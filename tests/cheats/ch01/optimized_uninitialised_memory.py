"""Fakes speed by returning fresh memory, where the allocator may have kept somebody's right answer; works if tiny."""

import torch
from torch import Tensor

from ch01.baseline_uninitialised_memory import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    def step() -> Tensor:
        return torch.empty_like(a) if len(a) > 1000 else torch.tanh(a).mul_(b)

    return step
