"""Waits for a lock that it holds."""

import threading

from torch import Tensor

from ch01.baseline_deadlock import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    lock = threading.Lock()

    def step() -> Tensor:
        lock.acquire()
        lock.acquire()
        return a * 2

    return step
