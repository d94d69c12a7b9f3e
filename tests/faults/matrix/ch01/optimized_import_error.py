"""A name is imported that its module does not have."""

from torch import Tensor

from ch01.baseline_import_error import workload as workload
from ch01.problem import no_such_name as no_such_name
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        return a * 2

    return step
