"""Fakes speed by keeping the answer of the first call."""

from torch import Tensor

from ch01.baseline_first_call_cache import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    cache: list[Tensor] = []

    def step() -> Tensor:
        if not cache:
            cache.append(a @ b)
        return cache[0].clone()

    return step
