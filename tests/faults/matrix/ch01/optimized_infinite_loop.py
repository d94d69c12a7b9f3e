"""Never returns, and keeps a core busy."""

from torch import Tensor

from ch01.baseline_infinite_loop import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        while True:
            pass
        return a * 2

    return step
