"""Samples packed in shards: one long sequential read brings a hundred of them, and memory does the shuffling."""

import os
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_small_file_shards import workload as workload
from common.python.workload import Step


def prepare(files: list[Path], shards: list[Path], order: Tensor) -> Step:
    per_shard = order.shape[1]
    shard = torch.empty(per_shard, shards[0].stat().st_size // per_shard, dtype=torch.uint8)
    batch = shard.new_empty(len(shards), *shard.shape)

    def step() -> Tensor:
        for rows, samples in zip(batch, order):
            descriptor = os.open(shards[int(samples[0]) // per_shard], os.O_RDONLY)
            os.preadv(descriptor, [shard.numpy()], 0)
            os.close(descriptor)
            torch.index_select(shard, 0, samples % per_shard, out=rows)
        return batch.flatten(0, 1)

    return step
