"""torch.multiprocessing's queue: the worker moves each batch into a new shared-memory file, whose handle it sends."""

from multiprocessing.connection import Connection

import numpy
import torch
from torch import Tensor
from torch.multiprocessing import get_context

from ch03.baseline_shared_memory_handoff import start_worker
from ch03.baseline_shared_memory_handoff import workload as workload
from common.python.workload import Step


def prepare(samples: Tensor, ids: Tensor) -> Step:
    queue = get_context("fork").SimpleQueue()

    def collate(consumer: Connection) -> None:
        torch.set_num_threads(1)  # a fork copies no thread of a team
        for batch in ids.numpy():
            queue.put(torch.from_numpy(numpy.take(samples.numpy(), batch, axis=0)))

    worker = start_worker(collate)

    def step() -> tuple[Tensor, ...]:
        worker.send_bytes(b"go")
        return tuple(queue.get() for _ in ids)

    return step
