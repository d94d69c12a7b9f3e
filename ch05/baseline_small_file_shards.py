"""One file per sample, in shuffled order: each costs an open, a lookup, a short scattered read and a close."""

from pathlib import Path

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, shards: int, per_shard: int, record: int) -> Inputs:
    """The same samples twice: as a file each, and packed in shards, where sample i is record i % per_shard."""
    samples = draw.host.integers(shards, per_shard, record, high=256, dtype=torch.uint8)
    firsts = draw.host.permutation(shards) * per_shard
    return {
        "files": [draw.file(f"samples/{i}", sample) for i, sample in enumerate(samples.flatten(0, 1))],
        "shards": [draw.file(f"shards/{i}", shard) for i, shard in enumerate(samples)],
        # Shuffled by shard and within each shard. Files could be shuffled freely, but both sides must give one answer.
        "order": torch.stack([first + draw.host.permutation(per_shard) for first in firsts]),
    }


def reference(files: list[Path], shards: list[Path], order: Tensor) -> Tensor:
    data = b"".join(files[i].read_bytes() for i in order.flatten().tolist())
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(order.numel(), -1)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda shards, per_shard, record: Cost(
        disk_bytes=shards * per_shard * record, items=shards * per_shard, unit="samples"
    ),
    sizes={
        "bench": {"shards": 4, "per_shard": 128, "record": 32768},
        "cpu": {"shards": 4, "per_shard": 32, "record": 32768},
        "test": {"shards": 3, "per_shard": 7, "record": 501},
    },
    tolerance=0.0,  # reading is exact
    clock="end_to_end",
)


def prepare(files: list[Path], shards: list[Path], order: Tensor) -> Step:
    batch = torch.empty(len(files), files[0].stat().st_size, dtype=torch.uint8)
    rows = batch.numpy()

    def step() -> Tensor:
        for row, sample in zip(rows, order.flatten().tolist()):
            with files[sample].open("rb", buffering=0) as file:
                file.readinto(row)
        return batch

    return step
