"""Is wrong on rank 1 only."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch01.baseline_all_reduce import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        out.copy_(a)
        dist.all_reduce(out)
        if dist.get_rank() == 1:
            out.mul_(1.001)
        return out

    return step
