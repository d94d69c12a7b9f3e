"""A module is imported that is not installed, and not declared."""

import no_such_module
from torch import Tensor

from ch01.baseline_missing_module import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        return no_such_module.double(a)

    return step
