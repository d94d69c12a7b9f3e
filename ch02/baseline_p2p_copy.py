"""Each GPU's tensor goes to the next GPU by way of the host: down over PCIe, across by gloo, up over PCIe again."""

import torch.distributed as dist
from torch import Tensor, empty_like

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"x": draw.normal(n)},
    reference=lambda rank, x: x[rank - 1],  # of the rank before; the ring closes at rank 0
    cost=lambda n: Cost(nvlink_bytes=4 * n, read=4 * n, write=4 * n),  # it is read here, and another one is written
    sizes={"bench": {"n": 1 << 24}, "test": {"n": 1027}},
    tolerance=0.0,  # a copy is exact
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks

    def step() -> Tensor:
        sent = x.cpu()
        received = empty_like(sent)
        sending = dist.isend(sent, after)  # not `send`: all ranks would wait for a receiver
        dist.recv(received, before)
        sending.wait()
        return received.to(x.device)

    return step
