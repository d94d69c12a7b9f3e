"""Every element is doubled 80 times over."""

import torch
from ch01.problem import workload as workload
from torch import Tensor

from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        for _ in range(80):
            torch.add(a, a, out=out)
        return out

    return step
