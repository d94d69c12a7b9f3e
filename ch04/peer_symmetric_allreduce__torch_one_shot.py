"""Torch's own one-shot all-reduce over symmetric memory: a copy, both barriers and the sum are in its one kernel."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch04.baseline_symmetric_allreduce import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)


def prepare(x: Tensor) -> Step:
    mine = symmetric_memory.empty(x.shape, dtype=x.dtype, device=x.device)
    symmetric_memory.rendezvous(mine, dist.group.WORLD)
    group = dist.group.WORLD.group_name

    def step() -> Tensor:
        return torch.ops.symm_mem.one_shot_all_reduce_copy(mine, x, "sum", group)

    return step
