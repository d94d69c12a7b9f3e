"""Reads address 0."""

import ctypes

from torch import Tensor

from ch01.baseline_segfault import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        ctypes.string_at(0)
        return a * 2

    return step
