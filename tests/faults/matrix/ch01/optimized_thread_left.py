"""Leaves threads behind that never end."""

import threading

from torch import Tensor

from ch01.baseline_thread_left import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    threading.Thread(target=threading.Event().wait).start()

    def step() -> Tensor:
        return a * 2

    return step
