"""Preparing raises."""

from torch import Tensor

from ch01.baseline_prepare_raises import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    raise ValueError("not prepared")

    def step() -> Tensor:
        return a * 2

    return step
