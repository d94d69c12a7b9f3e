"""Logits stay where they are: a rank reduces its part of each row to two numbers, and only these are exchanged."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch13.baseline_vocab_parallel_ce import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, target: Tensor, head: Tensor) -> Step:
    rows, gathered = len(head), x.new_empty(dist.get_world_size(), 2, len(x), dtype=torch.float32)

    def step() -> Tensor:
        logits = (x @ head.T).float()
        here = target - dist.get_rank() * rows
        chosen = logits.gather(1, here.clamp(0, rows - 1)[:, None])[:, 0]
        mine = torch.stack([logits.logsumexp(1), chosen.where((here >= 0) & (here < rows), 0.0)])
        dist.all_gather_into_tensor(gathered, mine[None])
        return gathered[:, 0].logsumexp(0) - gathered[:, 1].sum(0)  # one rank alone has the target's logit

    return step
