"""The step raises."""

from torch import Tensor

from ch01.baseline_step_raises import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        raise ValueError("not stepped")
        return a * 2

    return step
