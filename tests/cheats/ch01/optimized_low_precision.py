"""Fakes a float32 product by multiplying in bfloat16 and widening the result."""

from torch import Tensor

from ch01.baseline_low_precision import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    def step() -> Tensor:
        return (a.bfloat16() @ b.bfloat16()).float()

    return step
