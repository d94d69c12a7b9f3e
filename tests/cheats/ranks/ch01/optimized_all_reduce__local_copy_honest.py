"""Asks every rank for its numbers and adds them here."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch01.baseline_all_reduce import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    everyone = [torch.empty_like(a) for _ in range(dist.get_world_size())]

    def step() -> Tensor:
        dist.all_gather(everyone, a)
        return torch.stack(everyone).sum(dim=0)

    return step
