"""One thread reads through the page cache, then the copy to the GPU begins: disk and PCIe wait for each other."""

import os
from pathlib import Path

import numpy
import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, n: int) -> Inputs:
    data = draw.integers(n, high=256, dtype=torch.uint8)
    return {"path": draw.file("weights.bin", data), "device": torch.zeros_like(data)}


workload = Workload(
    inputs=inputs,
    reference=lambda path, device: torch.from_numpy(numpy.fromfile(path, numpy.uint8)).to(device.device),
    cost=lambda n: Cost(disk_bytes=n, pcie_bytes=n, write=n),
    # 64 MiB: every proof writes the file anew and reads it twice with each. At `test` size the end is no page's.
    sizes={"bench": {"n": 1 << 26}, "cpu": {"n": 1 << 23}, "test": {"n": (3 << 20) + 4099}},
    tolerance=0.0,  # reading is exact
    rungs="threads o_direct",
    mutates=("device",),  # where the bytes are to go
    clock="end_to_end",
)


def open_direct(path: Path) -> int:
    """A descriptor that bypasses the page cache. Raises OSError where the filesystem refuses that."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        raise OSError(error.errno, f"{path.parent} refuses O_DIRECT: point TMPDIR to a disk that takes it") from error


def read_at(descriptor: int, offset: int, buffer: numpy.ndarray, least: int) -> None:
    """Fill the buffer from there on, or as far as the file goes; EOFError if that is less than `least` bytes."""
    if (got := os.preadv(descriptor, [buffer], offset)) < least:
        raise EOFError(f"read {got} bytes at {offset}, expected {least}")


def prepare(path: Path, device: Tensor) -> Step:
    host = torch.empty(device.shape, dtype=device.dtype)

    def step() -> Tensor:
        with path.open("rb") as file:
            read_at(file.fileno(), 0, host.numpy(), len(host))
        return device.copy_(host)

    return step
