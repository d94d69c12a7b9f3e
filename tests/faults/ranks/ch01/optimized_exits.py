"""Ends the process of rank 1 with code 0, as if it were done."""

import os

import torch
import torch.distributed as dist
from torch import Tensor

from ch01.baseline_exits import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        out.copy_(a)
        if dist.get_rank() == 1:
            os._exit(0)
        dist.all_reduce(out)
        return out

    return step
