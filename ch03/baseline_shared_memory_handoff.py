"""A worker's batch is pickled, crosses a pipe 64 KiB at a time, and is unpickled: each byte is copied five times."""

import contextlib
import math
import mmap
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy
import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def shared(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor in memory that forked processes have in common; torch's own way needs /dev/shm, small in containers."""
    return torch.frombuffer(mmap.mmap(-1, dtype.itemsize * math.prod(shape)), dtype=dtype).view(shape)


def inputs(draw: Draw, batches: int, rows: int, width: int) -> Inputs:
    """Samples, and the order in which an epoch wants them."""
    samples, ids = shared(batches * rows, width), shared(batches, rows, dtype=torch.int64)
    samples.copy_(draw.host.normal(batches * rows, width))
    return {"samples": samples, "ids": ids.copy_(draw.host.permutation(batches * rows).view(batches, rows))}


def cost(batches: int, rows: int, width: int) -> Cost:
    """Each sample is read and written once, by the worker: whoever shares its memory needs no copy."""
    return Cost(host_bytes=batches * rows * (2 * 4 * width + 8), items=batches, unit="batches")


workload = Workload(
    inputs=inputs,
    reference=lambda samples, ids: tuple(samples[batch] for batch in ids),
    cost=cost,
    sizes={
        "bench": {"batches": 8, "rows": 256, "width": 32768},  # 32 MiB each
        "cpu": {"batches": 8, "rows": 64, "width": 16384},
        "test": {"batches": 3, "rows": 5, "width": 4099},
    },
    tolerance=0.0,  # samples are copied
    as_drawn=("samples", "ids"),
    clock="end_to_end",
)


def start_worker(work: Callable[[Connection], None]) -> Connection:
    """The connection to a forked process that does `work` whenever it is sent something."""

    def serve(ours: Connection, theirs: Connection) -> None:
        ours.close()
        with contextlib.suppress(EOFError):  # the step is no longer wanted
            while theirs.recv_bytes():
                work(theirs)

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(ours, theirs), daemon=True).start()
    theirs.close()
    return ours


def prepare(samples: Tensor, ids: Tensor) -> Step:
    def collate(consumer: Connection) -> None:
        for batch in ids.numpy():
            consumer.send(numpy.take(samples.numpy(), batch, axis=0))

    worker = start_worker(collate)

    def step() -> tuple[Tensor, ...]:
        worker.send_bytes(b"go")
        return tuple(torch.from_numpy(worker.recv()) for _ in ids)

    return step
