"""Eight threads copy samples straight into page-locked slots, each of which is reused once its copy is over."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy
import torch
from torch import Tensor

from ch03.baseline_collate_pinned_ring import workload as workload
from common.python.workload import Step

THREADS, SLOTS, AHEAD = 8, 4, 2  # AHEAD: batches that are being filled when one is sent


def prepare(samples: Tensor, order: Tensor, device: Tensor) -> Step:
    gpu, given = torch.get_device_module(device.device), list(samples.numpy())
    ring = torch.empty(SLOTS, *device.shape[1:], pin_memory=device.is_cuda)
    slots, sent = [list(slot.numpy()) for slot in ring], [gpu.Event() for _ in range(SLOTS)]
    pool = ThreadPoolExecutor(THREADS)

    def fill(slot: list[numpy.ndarray], ids: list[int], first: int) -> None:
        for row, index in zip(slot[first::THREADS], ids[first::THREADS]):
            numpy.copyto(row, given[index])  # on this thread, without the GIL

    def step() -> Tensor:
        batches = order.tolist()

        def begin(turn: int) -> list[Future[None]]:
            sent[turn % SLOTS].synchronize()  # the copy engine has read what lay here
            return [pool.submit(fill, slots[turn % SLOTS], batches[turn], first) for first in range(THREADS)]

        filling = [begin(turn) for turn in range(min(AHEAD, len(batches)))]
        for turn, target in enumerate(device):
            for part in filling[turn]:
                part.result()
            target.copy_(ring[turn % SLOTS], non_blocking=True)
            sent[turn % SLOTS].record()
            if len(filling) < len(batches):
                filling.append(begin(len(filling)))
        return device

    return step
