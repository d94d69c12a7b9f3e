"""Fills two buffers in turn, so that each call returns one that it filled itself."""

import itertools

import torch
from torch import Tensor

from ch01.baseline_leftover_buffer import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    buffers, calls = x.new_empty(2, x.shape[0]), itertools.count()

    def step() -> Tensor:
        return torch.logsumexp(x, 1, out=buffers[next(calls) % 2])

    return step
