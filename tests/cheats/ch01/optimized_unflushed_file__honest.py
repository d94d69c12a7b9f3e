"""Writes through a buffer as large, and flushes it within the step."""

from pathlib import Path

from torch import Tensor

from ch01.baseline_unflushed_file import workload as workload
from common.python.workload import Step


def prepare(counts: Tensor, path: Path) -> Step:
    def step() -> Path:
        with path.open("wb", buffering=2 * counts.nbytes) as file:
            file.write((counts + 1).numpy().tobytes())
        return path

    return step
