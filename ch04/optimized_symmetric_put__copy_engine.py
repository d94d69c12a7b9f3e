"""The copy engine moves each microbatch and a kernel behind it raises the flag: no multiprocessor has to copy."""

import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch04.baseline_symmetric_put import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)


def prepare(x: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    out = symmetric_memory.empty(x.shape, dtype=x.dtype, device=x.device)  # which the GPU before this one writes
    handle = symmetric_memory.rendezvous(out, dist.group.WORLD)
    theirs = handle.get_buffer(after, x.shape, x.dtype)

    def step() -> Tensor:
        handle.barrier(channel=len(x))  # what the last step received may be overwritten everywhere
        for index, (sent, place) in enumerate(zip(x, theirs)):
            place.copy_(sent)
            handle.put_signal(after, channel=index)
        for index in range(len(x)):
            handle.wait_signal(before, channel=index)
        return out

    return step
