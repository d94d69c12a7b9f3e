"""The scaled array is written to memory and read back before the sum: two kernels move five arrays."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

SCALE = 3.0

workload = Workload(
    inputs=lambda draw, n: {"b": draw.normal(n), "c": draw.normal(n)},
    reference=lambda b, c: b + SCALE * c,
    cost=lambda n: Cost(read=2 * 4 * n, write=4 * n, flops=2 * n),
    # arrays of 512 MiB; on a CPU of 32 MiB, as three of them are more than most last-level caches hold
    sizes={"bench": {"n": 1 << 27}, "cpu": {"n": 1 << 23}, "test": {"n": 10007}},
    tolerance=1e-6,
)


def prepare(b: Tensor, c: Tensor) -> Step:
    a = torch.empty_like(b)

    def step() -> Tensor:
        return torch.add(b, SCALE * c, out=a)

    return step
