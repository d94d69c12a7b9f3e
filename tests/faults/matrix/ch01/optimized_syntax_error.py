"""The file cannot be parsed."""

from torch import Tensor

from ch01.baseline_syntax_error import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step( -> Tensor:
        return a * 2

    return step
