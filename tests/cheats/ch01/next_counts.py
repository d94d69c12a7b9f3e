"""Each count plus one, in a file of bytes."""

from pathlib import Path

import numpy
import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def _inputs(draw: Draw, n: int) -> Inputs:
    counts = draw.host.integers(n, high=128, dtype=torch.uint8)
    return {"counts": counts, "path": draw.file("next.bin", torch.zeros_like(counts))}


workload = Workload(
    inputs=_inputs,
    reference=lambda counts, path: counts + 1,
    cost=lambda n: Cost(host_bytes=2 * n),
    sizes={"bench": {"n": 1 << 24}, "cpu": {"n": 1 << 18}, "test": {"n": 97}},
    tolerance=0.0,
    clock="end_to_end",
)


def prepare(counts: Tensor, path: Path) -> Step:
    def step() -> Path:
        path.write_bytes((counts + 1).numpy().tobytes())
        return path

    return step


def others_file(counts: Tensor, path: Path, honest: bool) -> Step:
    """Fakes speed by writing nothing: the file holds what another variant wrote there for the same inputs."""
    bytes_there = numpy.memmap(path, mode="r+")

    def step() -> Path:
        if honest:
            numpy.add(counts.numpy(), 1, out=bytes_there)
        return path

    return step


def unflushed_file(counts: Tensor, path: Path, honest: bool) -> Step:
    """Fakes speed by leaving the bytes in the program's own buffer, which is written when the next step begins."""
    files = [path.open("r+b")]

    def step() -> Path:
        files.pop().close()
        files.append(path.open("wb", buffering=2 * counts.nbytes))
        files[0].write((counts + 1).numpy().tobytes())
        if honest:
            files[0].flush()
        return path

    return step
