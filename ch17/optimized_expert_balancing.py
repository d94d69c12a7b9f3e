"""Every rank holds the two most popular experts, whose tokens stay at home; the others lie where least is to do."""

import torch.distributed as dist
from torch import Tensor

from ch17.baseline_expert_balancing import exchanging, popularity
from ch17.baseline_expert_balancing import workload as workload
from common.python.workload import Step

REPLICATED = 2


def balanced(experts: int, ranks: int) -> list[list[int]]:
    """For tokens of each rank, each expert's rank: the largest first, to the rank that has least."""
    shares, loads = popularity(experts), [0.0] * ranks
    by_share = sorted(range(experts), key=lambda expert: -shares[expert])
    homes = [[rank] * experts for rank in range(ranks)]  # at home, but for those that have one place
    for expert in by_share[REPLICATED:]:
        lightest = loads.index(min(loads))
        loads[lightest] += shares[expert]
        for of_rank in homes:
            of_rank[expert] = lightest
    return homes


def prepare(x: Tensor, expert: Tensor, up: Tensor, down: Tensor) -> Step:
    return exchanging(x, expert, up, down, balanced(len(up), dist.get_world_size()))
