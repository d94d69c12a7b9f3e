"""A pageable tensor to the GPU in one call: one thread of the driver copies it to where the copy engine can read."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"host": draw.host.normal(n), "device": torch.zeros(n, device=draw.device)},
    reference=lambda host, device: host.to(device.device),
    cost=lambda n: Cost(pcie_bytes=4 * n, write=4 * n, host_bytes=4 * n),
    sizes={"bench": {"n": 3 << 25}, "test": {"n": 5_000_011}},  # 384 MiB: more than the caches of a large host hold
    tolerance=0.0,  # a copy is exact
    mutates=("device",),
    clock="end_to_end",
)


def prepare(host: Tensor, device: Tensor) -> Step:
    def step() -> Tensor:
        return device.copy_(host)

    return step
