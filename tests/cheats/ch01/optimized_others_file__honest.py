"""Writes the bytes over those that are there, in place."""

from pathlib import Path

import numpy
from torch import Tensor

from ch01.baseline_others_file import workload as workload
from common.python.workload import Step


def prepare(counts: Tensor, path: Path) -> Step:
    bytes_there = numpy.memmap(path, mode="r+")

    def step() -> Path:
        numpy.add(counts.numpy(), 1, out=bytes_there)
        return path

    return step
