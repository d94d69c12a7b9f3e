"""Two page-locked buffers take turns: all CPU cores fill one while the copy engine empties the other."""

import torch
from torch import Tensor

from ch01.baseline_pinned_copy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)

PIECE = 1 << 22  # floats: 16 MiB, large enough to amortise the wait between a buffer's two uses


def prepare(host: Tensor, device: Tensor) -> Step:
    buffers = [host.new_empty(PIECE, pin_memory=True) for _ in range(2)]
    emptied = [torch.cuda.Event() for _ in buffers]
    pieces = list(zip(host.split(PIECE), device.split(PIECE)))

    def step() -> Tensor:
        for index, (source, target) in enumerate(pieces):
            buffer, event = buffers[index % 2][: len(source)], emptied[index % 2]
            event.synchronize()
            buffer.copy_(source)
            target.copy_(buffer, non_blocking=True)
            event.record()
        return device

    return step
