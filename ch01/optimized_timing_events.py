"""An event after each layer, read when all layers are enqueued: the CPU stays ahead, and the GPU never waits for it."""

import torch
from torch import Tensor

from ch01.baseline_timing_events import layer, told
from ch01.baseline_timing_events import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)


def prepare(x: Tensor, ups: list[Tensor], downs: list[Tensor]) -> Metered:
    marks, times = [torch.cuda.Event(enable_timing=True) for _ in range(len(ups) + 1)], list[float]()

    def step() -> Tensor:
        times.clear()
        hidden = x
        marks[0].record()
        for index, (up, down) in enumerate(zip(ups, downs)):
            hidden = layer(hidden, up, down)
            marks[index + 1].record()
        for index in range(len(ups)):  # early layers are read while the GPU is still at the later ones
            marks[index + 1].synchronize()
            times.append(marks[index].elapsed_time(marks[index + 1]))
        return hidden

    return Metered(step, lambda: told(times))
