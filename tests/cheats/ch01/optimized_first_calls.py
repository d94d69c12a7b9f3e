"""Fakes speed by working in the first six calls only, when it expects to be checked."""

import itertools

import torch
from torch import Tensor

from ch01.baseline_first_calls import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, calls = torch.empty_like(a), itertools.count()

    def step() -> Tensor:
        if next(calls) < 6:
            torch.matmul(a, b, out=out)
        return out

    return step
