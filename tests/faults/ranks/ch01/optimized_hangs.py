"""Sleeps on rank 1 for ten minutes."""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from ch01.baseline_hangs import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        out.copy_(a)
        if dist.get_rank() == 1:
            time.sleep(600)
        dist.all_reduce(out)
        return out

    return step
