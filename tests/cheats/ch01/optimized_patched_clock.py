"""Fakes speed by replacing the functions of time with ones for which nine tenths of each step never happened."""

import time

import torch
from torch import Tensor

from ch01.baseline_patched_clock import workload as workload
from common.python.workload import Step

now_ns, stolen = time.perf_counter_ns, [0]
time.perf_counter_ns = lambda: now_ns() - stolen[0]
time.perf_counter = lambda: (now_ns() - stolen[0]) / 1e9


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        start = now_ns()
        torch.matmul(a, b, out=out)
        stolen[0] += (now_ns() - start) * 9 // 10
        return out

    return step
