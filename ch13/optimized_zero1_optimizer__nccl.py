"""ZeRO-1: a rank is sent the sum for its share of the weights, updates that share, and the others gather the result."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch13.baseline_zero1_optimizer import adamw
from ch13.baseline_zero1_optimizer import workload as workload
from common.python.workload import Step


def prepare(gradient: Tensor, weight: Tensor, mean: Tensor, square: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    share = tuple(state.chunk(ranks)[rank] for state in (weight, mean, square))  # all that it would have to hold
    update, mine, out = adamw(*share), gradient.chunk(ranks)[rank].clone(), torch.empty_like(gradient)

    def step() -> tuple[Tensor, ...]:
        dist.reduce_scatter_tensor(mine, gradient)
        dist.all_gather_into_tensor(out, update(mine.div_(ranks)))
        return out, *share

    return step
