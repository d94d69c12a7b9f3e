"""Eight threads copy pages of the mapped file to page-locked slots, from which the copy engine reads meanwhile."""

from concurrent.futures import ThreadPoolExecutor

import numpy
import torch
from torch import Tensor

from ch05.baseline_weight_load import workload as workload
from common.python.workload import Step

THREADS, SLOTS, CHUNK = 8, 16, 8 << 20  # 128 MiB of slots


def prepare(path: str, parameters: dict[str, Tensor]) -> Step:
    first, pool = next(iter(parameters.values())), ThreadPoolExecutor(THREADS)
    event = torch.get_device_module(first.device).Event
    slots = torch.empty(SLOTS, CHUNK, dtype=torch.uint8, pin_memory=first.is_cuda)
    emptied = [event() for _ in range(SLOTS)]
    targets = {name: there.view(torch.uint8).split(CHUNK) for name, there in parameters.items()}

    def fill(index: int, source: Tensor) -> Tensor:
        emptied[index % SLOTS].synchronize()  # the copy engine has read what lay here
        slot = slots[index % SLOTS, : len(source)]
        numpy.copyto(slot.numpy(), source.numpy())  # on this thread, without the GIL; a page is mapped when it is read
        return slot

    def step() -> tuple[Tensor, ...]:
        state = torch.load(path, mmap=True, map_location="cpu", weights_only=True)  # reads names and shapes alone
        sources = [piece for name in targets for piece in state[name].view(torch.uint8).split(CHUNK)]
        filling = [pool.submit(fill, *work) for work in enumerate(sources[:SLOTS])]
        for index, target in enumerate(piece for pieces in targets.values() for piece in pieces):
            target.copy_(filling[index].result(), non_blocking=True)
            emptied[index % SLOTS].record()
            if (following := len(filling)) < len(sources):
                filling.append(pool.submit(fill, following, sources[following]))
        return tuple(parameters.values())

    return step
