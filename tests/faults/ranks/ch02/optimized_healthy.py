"""Adds what all ranks hold, as it should."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch02.baseline_healthy import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        out.copy_(a)
        dist.all_reduce(out)
        return out

    return step
