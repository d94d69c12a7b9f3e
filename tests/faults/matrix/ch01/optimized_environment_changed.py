"""Leaves a variable behind in the environment."""

import os

from torch import Tensor

from ch01.baseline_environment_changed import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        os.environ["LEFT_BY"] = "a step"
        return a * 2

    return step
