"""NCCL's send and receive: kernels on both GPUs meet, and move the tensor in steps through NCCL's own buffers."""

import torch.distributed as dist
from torch import Tensor, empty_like

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"x": draw.normal(n)},
    reference=lambda rank, x: x[rank - 1],  # of the rank before; the ring closes at rank 0
    cost=lambda n: Cost(nvlink_bytes=4 * n, read=4 * n, write=4 * n),  # it is read here, and another one is written
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 1027}},
    tolerance=0.0,  # a copy is exact
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    out = empty_like(x)
    both = [  # as one group: two blocking sends that face each other wait for ever
        dist.P2POp(dist.isend, x, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, out, (rank - 1) % ranks),
    ]

    def step() -> Tensor:
        for work in dist.batch_isend_irecv(both):
            work.wait()
        return out

    return step
