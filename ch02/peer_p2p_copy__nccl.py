"""NCCL's send and receive: kernels on both GPUs meet, and move the tensor in steps through NCCL's own buffers."""

import torch.distributed as dist
from torch import Tensor, empty_like

from ch02.baseline_p2p_copy import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    out = empty_like(x)
    both = [
        dist.P2POp(dist.isend, x, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, out, (rank - 1) % ranks),
    ]

    def step() -> Tensor:
        for work in dist.batch_isend_irecv(both):
            work.wait()
        return out

    return step
