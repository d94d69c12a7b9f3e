"""What the baselines share: a sum over all ranks."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        out.copy_(a)
        dist.all_reduce(out)
        return out

    return step
