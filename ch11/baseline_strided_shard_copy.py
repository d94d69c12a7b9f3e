"""The whole matrix crosses PCIe, since only contiguous memory is sent, and the GPU keeps a quarter of each row."""

import torch
from torch import Tensor

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(gpus=1)
SHARDS = 4


def inputs(draw: Draw, rows: int, width: int) -> Inputs:
    """A matrix in host memory, which of its SHARDS blocks of columns is wanted, and the GPU's place for that."""
    return {
        "weights": draw.host.normal(rows, SHARDS * width, dtype=torch.float16),
        "shard": draw.host.integers(1, high=SHARDS),
        "held": draw.normal(rows, width, dtype=torch.float16),
    }


def shard_of(weights: Tensor, shard: Tensor) -> Tensor:
    return weights.unflatten(1, (SHARDS, -1))[:, int(shard)]


workload = Workload(
    inputs=inputs,
    reference=lambda weights, shard, held: shard_of(weights, shard).to(held.device),
    cost=lambda rows, width: Cost(pcie_bytes=2 * rows * width, host_bytes=2 * rows * width, write=2 * rows * width),
    sizes={"bench": {"rows": 8192, "width": 4096}, "test": {"rows": 67, "width": 53}},  # 64 MiB, 8 KiB of each row
    tolerance=0.0,  # a copy is exact
    frozen=("weights",),
    mutates=("held",),
    as_drawn=("weights",),
    clock="end_to_end",
)


def prepare(weights: Tensor, shard: Tensor, held: Tensor) -> Step:
    pinned = weights.pin_memory()

    def step() -> Tensor:
        return held.copy_(shard_of(pinned.to(held.device, non_blocking=True), shard))

    return step
