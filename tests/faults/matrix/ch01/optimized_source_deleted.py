"""Deletes its own file."""

from pathlib import Path

from torch import Tensor

from ch01.baseline_source_deleted import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        Path(__file__).unlink(missing_ok=True)
        return a * 2

    return step
