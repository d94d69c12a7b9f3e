"""The next step starts from tokens that are on the GPU, and while it runs the host does the last step's bookkeeping."""

from collections.abc import Callable

import torch
from torch import Tensor

from ch16.baseline_async_scheduling import Scheduler, served
from ch16.baseline_async_scheduling import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Step


def prepare(weights: Weights, shape: Shape, first: Tensor, stops: Tensor, new: int) -> Step:
    gpu = torch.get_device_module(first.device)
    copies = [torch.empty(len(first), dtype=torch.int64, pin_memory=first.is_cuda) for _ in range(2)]
    arrived = [gpu.Event() for _ in copies]

    def one_ahead(scheduler: Scheduler, decode: Callable[[Tensor], None], latest: Tensor) -> None:
        def start(turn: int) -> None:
            decode(scheduler.advance())  # also for requests that have ended, which the host does not know yet
            copies[turn].copy_(latest, non_blocking=True)
            arrived[turn].record()

        turn = 0
        start(turn)
        while scheduler.live:
            start(1 - turn)
            arrived[turn].synchronize()
            scheduler.take(copies[turn].tolist())
            turn = 1 - turn

    return served(weights, shape, first, stops, new, one_ahead)
