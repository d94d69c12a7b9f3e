"""Asks for more memory than any GPU has."""

import torch
from torch import Tensor

from ch03.baseline_device_memory import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        torch.empty(1 << 42, dtype=torch.uint8, device=a.device)
        return a * 2

    return step
