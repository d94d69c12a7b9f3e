"""The copy engine writes each GPU's tensor straight into the next GPU's memory: no multiprocessor carries a byte."""

import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch02.baseline_p2p_copy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)


def prepare(x: Tensor) -> Step:
    after = (dist.get_rank() + 1) % dist.get_world_size()
    out = symmetric_memory.empty(x.shape, dtype=x.dtype, device=x.device)  # which the GPU before this one writes
    handle = symmetric_memory.rendezvous(out, dist.group.WORLD)
    theirs = handle.get_buffer(after, x.shape, x.dtype)

    def step() -> Tensor:
        handle.barrier()  # what the last step received may be overwritten everywhere
        theirs.copy_(x)
        handle.barrier()  # everywhere, all has come
        return out

    return step
