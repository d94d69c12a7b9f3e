"""Fakes speed by replacing the harness's own name for the clock, which no patched module of Python's gives away."""

import torch
from torch import Tensor

from ch01.baseline_patched_harness import workload as workload
from common.python.timing import clock
from common.python.workload import Step

now_ns, stolen = clock.now_ns, [0]
clock.now_ns = lambda: now_ns() - stolen[0]


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        start = now_ns()
        torch.matmul(a, b, out=out)
        stolen[0] += (now_ns() - start) * 9 // 10
        return out

    return step
