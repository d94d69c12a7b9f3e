"""Fakes speed by leaving the bytes in the program's own buffer, which is written when the next step closes the file."""

from pathlib import Path

from torch import Tensor

from ch01.baseline_unflushed_file import workload as workload
from common.python.workload import Step


def prepare(counts: Tensor, path: Path) -> Step:
    files = [path.open("r+b")]

    def step() -> Path:
        files.pop().close()
        files.append(path.open("wb", buffering=2 * counts.nbytes))
        files[0].write((counts + 1).numpy().tobytes())
        return path

    return step
