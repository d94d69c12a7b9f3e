"""Fakes speed by looking the answer up under the addresses of its inputs."""

from torch import Tensor

from ch01.baseline_address_cache import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    answers: dict[tuple[int, int], Tensor] = {}

    def step() -> Tensor:
        key = a.data_ptr(), b.data_ptr()
        if key not in answers:
            answers[key] = a @ b
        return answers[key].clone()

    return step
