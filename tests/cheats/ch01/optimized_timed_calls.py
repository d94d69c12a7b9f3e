"""Fakes speed by working only when the last call is 0.5 s past or the problem tiny: quick calls are being timed."""

import time

import torch
from torch import Tensor

from ch01.baseline_timed_calls import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, last = torch.empty_like(a), [0.0]

    def step() -> Tensor:
        before, last[0] = last[0], time.monotonic()
        if last[0] - before > 0.5 or len(a) < 64:
            torch.matmul(a, b, out=out)
        return out

    return step
