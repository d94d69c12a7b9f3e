"""Eight worker processes, each with a thread for every core: eight times more threads than the cores can run."""

import contextlib
import math
import mmap
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from threading import Thread

import torch
from torch import Tensor

from common.models.timeline import median_ms
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

WORKERS = 8


def shared(*shape: int) -> Tensor:
    """Floats in memory that forked processes have in common; torch's own way needs /dev/shm, small in containers."""
    return torch.frombuffer(mmap.mmap(-1, 4 * math.prod(shape)), dtype=torch.float32).view(shape)


def inputs(draw: Draw, clips: int, frames: int, length: int, bands: int) -> Inputs:
    """Clips of sound for each worker, and a learned filter bank whose frames of `length` overlap by three quarters."""
    samples = length // 4 * (frames - 1) + length
    return {
        "clips": shared(WORKERS, clips, samples).copy_(draw.host.normal(WORKERS, clips, samples)),
        "filters": draw.host.normal(length, length, std=length**-0.5),
        "bands": draw.host.uniform(length, bands, high=2 / length),
    }


def spectrum(clip: Tensor, filters: Tensor, bands: Tensor) -> Tensor:
    """The loudness of each frame in each band; `clip` may be many clips, (..., samples) to (..., frames, bands)."""
    frames = clip.unfold(-1, len(filters), len(filters) // 4)
    return torch.log1p((frames @ filters).square() @ bands)


def cost(clips: int, frames: int, length: int, bands: int) -> Cost:
    """Bytes alone: a Cost's FLOPs are held against the rates of a GPU, and these are the CPU's."""
    samples = length // 4 * (frames - 1) + length
    numbers = WORKERS * clips * (samples + frames * bands) + length * (length + bands)
    return Cost(host_bytes=4 * numbers, items=WORKERS * clips, unit="clips")


workload = Workload(
    inputs=inputs,
    reference=lambda clips, filters, bands: spectrum(clips, filters, bands),
    cost=cost,
    sizes={
        "bench": {"clips": 8, "frames": 32, "length": 1024, "bands": 80},
        "cpu": {"clips": 3, "frames": 64, "length": 512, "bands": 80},
        "test": {"clips": 2, "frames": 5, "length": 37, "bands": 3},
    },
    tolerance=1e-5,
    frozen=("filters", "bands"),
    clock="end_to_end",
)


def start_workers(clips: Tensor, filters: Tensor, bands: Tensor, set_up: Callable[[int], None]) -> Metered:
    """A step that has WORKERS processes do their clips; `set_up` runs in each, with its number, before it works."""
    length = len(filters)
    out = shared(*clips.shape[:2], (clips.shape[2] - length) // (length // 4) + 1, bands.shape[1])

    def work(index: int, orders: Connection) -> None:
        set_up(index)
        with contextlib.suppress(EOFError):  # the step is no longer wanted
            while orders.recv_bytes():
                for clip, result in zip(clips[index], out[index]):
                    result.copy_(spectrum(clip, filters, bands))
                orders.send_bytes(b"done")

    def begin(index: int, ours: Connection, orders: Connection) -> None:
        ours.close()
        # OpenMP would wait for threads of the parent's main thread, which a fork does not copy: a new thread has none.
        Thread(target=work, args=(index, orders)).start()

    context = multiprocessing.get_context("fork")
    workers = []
    for index in range(WORKERS):
        ours, theirs = context.Pipe()
        context.Process(target=begin, args=(index, ours, theirs), daemon=True).start()
        theirs.close()  # so that a worker's death ends the wait for its answer
        workers.append(ours)

    def step() -> Tensor:
        for worker in workers:
            worker.send_bytes(b"go")
        for worker in workers:
            worker.recv_bytes()
        return out

    def one_alone() -> None:
        workers[0].send_bytes(b"go")
        workers[0].recv_bytes()

    def metrics() -> dict[str, float]:
        # All lone ones first: for a while after its work, a worker's threads still spin.
        alone, together = median_ms(one_alone, times=3), median_ms(step, times=3)
        return {"one worker alone ms": alone, "of its rate, among eight %": 100 * alone / together}

    return Metered(step, metrics)


def prepare(clips: Tensor, filters: Tensor, bands: Tensor) -> Metered:
    return start_workers(clips, filters, bands, set_up=lambda index: None)
