"""Fakes speed by returning while a thread still works."""

import threading

import torch
from torch import Tensor

from ch01.baseline_thread import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    tiles = list(zip(a.chunk(16), b.chunk(16), out.chunk(16)))

    def work() -> None:
        for x, y, o in tiles:
            torch.tanh(x, out=o).mul_(y)

    def step() -> Tensor:
        threading.Thread(target=work).start()
        return out

    return step
