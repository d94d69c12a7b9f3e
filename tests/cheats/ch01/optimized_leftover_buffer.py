"""Fakes speed by working in every second call; the others return what the call before left in the buffer."""

import itertools

import torch
from torch import Tensor

from ch01.baseline_leftover_buffer import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    out, calls = x.new_empty(x.shape[0]), itertools.count()

    def step() -> Tensor:
        if next(calls) % 2 == 0:
            torch.logsumexp(x, 1, out=out)
        return out

    return step
