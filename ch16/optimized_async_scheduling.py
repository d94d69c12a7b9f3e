"""The next step starts from tokens that are on the GPU, and while it runs the host does the last step's bookkeeping."""

from collections.abc import Callable

import torch
from torch import Tensor

from ch16.baseline_async_scheduling import Scheduler, served
from ch16.baseline_async_scheduling import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Step


def prepare(weights: Weights, shape: Shape, prompt: Tensor, stops: Tensor, new: int) -> Step:
    gpu = torch.get_device_module(prompt.device)
    copies = [torch.empty(len(prompt), dtype=torch.int64, pin_memory=prompt.is_cuda) for _ in range(2)]
    arrived = [gpu.Event() for _ in copies]

    def one_ahead(scheduler: Scheduler, decode: Callable[[Tensor], None], latest: Tensor) -> None:
        def send(index: int) -> None:
            copies[index % 2].copy_(latest, non_blocking=True)
            arrived[index % 2].record()

        send(0)
        index = 0
        while scheduler.live:
            decode(scheduler.advance())  # also for requests that have ended, which the host does not know yet
            send(index + 1)
            arrived[index % 2].synchronize()
            scheduler.take(copies[index % 2].tolist())
            index += 1

    return served(weights, shape, prompt, stops, new, one_ahead)
