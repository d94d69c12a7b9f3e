"""Raises on rank 1, while rank 0 waits for it in the collective."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch01.baseline_raises import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        out.copy_(a)
        if dist.get_rank() == 1:
            raise ValueError("rank 1 has no luck")
        dist.all_reduce(out)
        return out

    return step
