"""O_DIRECT reads into a page-locked ring feed disk and PCIe at once: pays only where the disk outruns a core's copy."""

import ctypes
import mmap
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_direct_read import open_direct, read_at
from ch05.baseline_direct_read import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1, direct_io=True)

THREADS, CHUNK = 8, 1 << 20


def page_locked(nbytes: int) -> Tensor:
    """Bytes that begin with a page, as O_DIRECT wants them, and that the copy engine may read."""
    memory, cudart = (ctypes.c_byte * nbytes).from_buffer(mmap.mmap(-1, nbytes)), torch.cuda.cudart()
    torch.cuda.check_error(cudart.cudaHostRegister(ctypes.addressof(memory), nbytes, 0))
    weakref.finalize(memory, cudart.cudaHostUnregister, ctypes.addressof(memory))  # with the last tensor that uses it
    return torch.frombuffer(memory, dtype=torch.uint8)


def prepare(path: Path, device: Tensor) -> Step:
    ring, pool = page_locked(THREADS * 2 * CHUNK).view(THREADS, 2, CHUNK), ThreadPoolExecutor(THREADS)
    pieces = device.split(CHUNK)
    streams = [torch.cuda.Stream() for _ in range(THREADS)]
    emptied = [[torch.cuda.Event() for _ in range(2)] for _ in range(THREADS)]

    def carry(thread: int, descriptor: int) -> None:
        """Every eighth piece: while one of the thread's two slots crosses PCIe, the disk fills the other."""
        with torch.cuda.stream(streams[thread]):
            for index in range(thread, len(pieces), THREADS):
                turn = index // THREADS % 2
                slot, event, piece = ring[thread, turn], emptied[thread][turn], pieces[index]
                event.synchronize()
                read_at(descriptor, index * CHUNK, slot.numpy(), len(piece))
                piece.copy_(slot[: len(piece)], non_blocking=True)
                event.record()

    def step() -> Tensor:
        descriptor, current = open_direct(path), torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(current)
        list(pool.map(carry, range(THREADS), [descriptor] * THREADS))  # the list waits, and raises what a thread raised
        os.close(descriptor)
        for stream in streams:
            current.wait_stream(stream)
        return device

    return step
