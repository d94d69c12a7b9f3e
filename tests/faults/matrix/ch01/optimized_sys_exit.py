"""Leaves Python amid a step, as if all were well."""

import sys

from torch import Tensor

from ch01.baseline_sys_exit import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        sys.exit(0)
        return a * 2

    return step
