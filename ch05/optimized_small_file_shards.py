"""Eight threads read pieces of shards past the page cache: the disk writes samples to their places in the batch."""

import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_small_file_shards import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(direct_io=True)

THREADS, PIECE = 8, 32  # samples that one read scatters: 1 MiB here
BLOCK = 4096  # O_DIRECT wants whole ones


def prepare(files: list[Path], shards: list[Path], order: Tensor) -> Step:
    per_shard, pool, record = order.shape[1], ThreadPoolExecutor(THREADS), files[0].stat().st_size
    flags = os.O_RDONLY | (0 if record % BLOCK else os.O_DIRECT)
    batch = torch.frombuffer(mmap.mmap(-1, len(files) * record), dtype=torch.uint8).view(len(files), record)
    rows = list(batch.numpy())

    def read(descriptor: int, places: list[int], first: int) -> None:
        os.preadv(descriptor, [rows[place] for place in places[first : first + PIECE]], first * record)

    def step() -> Tensor:
        descriptors = [os.open(shards[first // per_shard], flags) for first in order[:, 0].tolist()]
        # Sample i of a shard goes to the row at which the order has it.
        places = (order % per_shard).argsort(1) + torch.arange(0, len(files), per_shard)[:, None]
        reads = [
            pool.submit(read, descriptor, own, first)
            for descriptor, own in zip(descriptors, places.tolist())
            for first in range(0, per_shard, PIECE)
        ]
        for done in reads:
            done.result()
        for descriptor in descriptors:
            os.close(descriptor)
        return batch

    return step
