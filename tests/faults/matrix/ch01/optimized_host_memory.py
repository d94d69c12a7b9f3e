"""Asks for more host memory than its process may have."""

import resource
from pathlib import Path

import torch
from torch import Tensor

from ch01.baseline_host_memory import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))  # this machine is safe

    def step() -> Tensor:
        torch.ones(2 << 30, dtype=torch.uint8)
        return a * 2

    return step
