"""Four workers write tokens into page-locked memory that all processes share: a byte in a pipe hands a batch over."""

import contextlib
import ctypes
import mmap
import multiprocessing
import weakref
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_dataloader_workers import BATCH, Texts, epoch
from ch05.baseline_dataloader_workers import workload as workload
from common.python.workload import Step

WORKERS = 4  # a batch takes about as long to decode as the network takes for it: two keep up, four ride out a slow host


def decode(texts: Texts, batches: list[Tensor], first: int, others: list[Connection], orders: Connection) -> None:
    """A worker: in each epoch every fourth batch, which it tells of as soon as the batch is there."""
    for end in others:
        end.close()  # so that the end of the step's owner is the end of the pipe
    with contextlib.suppress(EOFError, BrokenPipeError):  # the step is no longer wanted
        while orders.recv_bytes():
            for turn in range(first, len(batches), WORKERS):
                for place, tokens in enumerate(batches[turn]):
                    tokens.copy_(texts[turn * BATCH + place])
                orders.send_bytes(b"done")


def end(workers: list[Connection], processes: list[BaseProcess]) -> None:
    for worker in workers:
        with contextlib.suppress(BrokenPipeError):
            worker.send_bytes(b"")  # to close is not enough: a process forked later may hold this end too
        worker.close()
    for process in processes:
        process.join()


def page_lock(memory: ctypes.Array[ctypes.c_byte]) -> None:
    cudart = torch.cuda.cudart()
    torch.cuda.check_error(cudart.cudaHostRegister(ctypes.addressof(memory), len(memory), 0))
    weakref.finalize(memory, cudart.cudaHostUnregister, ctypes.addressof(memory))  # with the last tensor that uses it


def prepare(files: list[Path], table: Tensor, gains: Tensor, head: Tensor) -> Step:
    texts, context = Texts(files), multiprocessing.get_context("fork")
    shape = len(files), len(texts[0])  # all texts have one length
    memory = (ctypes.c_byte * (8 * shape[0] * shape[1])).from_buffer(mmap.mmap(-1, 8 * shape[0] * shape[1]))
    batches = list(torch.frombuffer(memory, dtype=torch.int64).view(shape).split(BATCH))
    workers: list[Connection] = []
    processes = []
    for first in range(WORKERS):
        ours, theirs = context.Pipe()
        workers.append(ours)
        processes.append(context.Process(target=decode, args=(texts, batches, first, workers, theirs), daemon=True))
        processes[-1].start()
        theirs.close()  # so that a worker's death ends the wait for its batch
    if table.is_cuda:
        page_lock(memory)  # behind the forks, which copy no page of it: it is shared
    sent = torch.get_device_module(table.device).Event()

    def in_turn() -> Iterator[Tensor]:
        for turn, batch in enumerate(batches):
            workers[turn % WORKERS].recv_bytes()
            yield batch
        sent.record()

    def step() -> Tensor:
        sent.synchronize()  # the copy engine has read what lay here
        for worker in workers:
            worker.send_bytes(b"go")
        return epoch(in_turn(), table, gains, head)

    weakref.finalize(step, end, workers, processes)
    return step
