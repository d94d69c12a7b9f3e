"""Sleeps longer than a pair may take."""

import time

from torch import Tensor

from ch01.baseline_oversleeping import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        time.sleep(600)
        return a * 2

    return step
