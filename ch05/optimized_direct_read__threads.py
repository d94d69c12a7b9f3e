"""Eight threads read pieces through the page cache: the disk has several requests at once, memory the same copies."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_direct_read import read_at
from ch05.baseline_direct_read import workload as workload
from common.python.workload import Step

THREADS, CHUNK = 8, 1 << 20


def prepare(path: Path, device: Tensor) -> Step:
    host, pool = torch.empty(device.shape, dtype=device.dtype), ThreadPoolExecutor(THREADS)
    pieces = [piece.numpy() for piece in host.split(CHUNK)]

    def step() -> Tensor:
        with path.open("rb") as file:
            reads = [
                pool.submit(read_at, file.fileno(), index * CHUNK, piece, len(piece))
                for index, piece in enumerate(pieces)
            ]
            for read in reads:
                read.result()
        return device.copy_(host)

    return step
