"""A module is declared that is not installed."""

from torch import Tensor

from ch01.baseline_unmet_need import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["no_such_module"])


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        return a * 2

    return step
