"""Ends its process amid a step, as if all were well."""

import os

from torch import Tensor

from ch01.baseline_os_exit import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        os._exit(0)
        return a * 2

    return step
