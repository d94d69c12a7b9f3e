"""Every element is doubled 400 times over."""

import torch
from ch01.problem import workload as workload
from torch import Tensor

from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        for _ in range(400):
            torch.add(a, a, out=out)
        return out

    return step
