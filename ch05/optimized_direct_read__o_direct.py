"""The eight threads read with O_DIRECT: the disk writes into the program's own memory, the page cache is left out."""

import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_direct_read import open_direct, read_at
from ch05.baseline_direct_read import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(direct_io=True)

THREADS, CHUNK = 8, 1 << 20


def prepare(path: Path, device: Tensor) -> Step:
    n, pool = len(device), ThreadPoolExecutor(THREADS)
    # Memory, offset and length must be multiples of a block: whole chunks from the start of a page on.
    host = torch.frombuffer(mmap.mmap(-1, -(-n // CHUNK) * CHUNK), dtype=device.dtype)
    pieces = [piece.numpy() for piece in host.split(CHUNK)]

    def step() -> Tensor:
        descriptor = open_direct(path)
        reads = [
            pool.submit(read_at, descriptor, index * CHUNK, piece, min(CHUNK, n - index * CHUNK))
            for index, piece in enumerate(pieces)
        ]
        for read in reads:
            read.result()
        os.close(descriptor)
        return device.copy_(host[:n])

    return step
