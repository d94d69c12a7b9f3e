"""The reference cannot be computed."""

from dataclasses import replace

from torch import Tensor

from ch01.problem import prepare as prepare
from ch01.problem import workload as other


def reference(a: Tensor) -> Tensor:
    raise ValueError("no answer")


workload = replace(other, reference=reference)
