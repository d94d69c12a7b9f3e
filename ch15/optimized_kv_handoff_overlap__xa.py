"""Experiment: each layer's keys and values travel by a copy engine, which holds no multiprocessor."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch15.baseline_kv_handoff_overlap import Layer, through
from ch15.baseline_kv_handoff_overlap import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, layers: list[Layer]) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    to, sender, copies = (rank + 1) % ranks, (rank - 1) % ranks, torch.cuda.Stream()
    cache = x.new_empty(len(layers), *x.shape[:2], 2, *x.shape[2:])
    theirs = symmetric_memory.empty(cache.shape, dtype=cache.dtype, device=cache.device)
    link = symmetric_memory.rendezvous(theirs, dist.group.WORLD)
    there = link.get_buffer(to, theirs.shape, theirs.dtype)

    def keep(index: int, kv: Tensor) -> None:
        cache[index] = kv
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            there[index].copy_(cache[index])
            link.put_signal(to, channel=1 + index)

    def step() -> tuple[Tensor, Tensor]:
        link.barrier(channel=0)  # the receiver has read what the last step brought
        out = through(x, layers, keep)
        for index in range(len(layers)):
            link.wait_signal(sender, channel=1 + index)
        torch.cuda.current_stream().wait_stream(copies)
        return theirs, out

    return step
