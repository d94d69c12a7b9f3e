"""Workers are spawned: each is a new interpreter, which imports the program and numpy before it reads a record."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path

import numpy
import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

# numpy's own function: the pair's would have each worker import torch, for seconds of a core, with every step.
read = partial(numpy.fromfile, dtype="float32")


def inputs(draw: Draw, workers: int, length: int) -> Inputs:
    records = draw.host.normal(workers, length)
    return {"files": [draw.file(f"records/{index}", record) for index, record in enumerate(records)]}


workload = Workload(
    inputs=inputs,
    reference=lambda files: torch.from_numpy(numpy.stack(list(map(read, files)))),
    cost=lambda workers, length: Cost(disk_bytes=4 * workers * length, items=workers, unit="workers"),
    sizes={
        "bench": {"workers": 4, "length": 4096},
        "cpu": {"workers": 2, "length": 4096},
        "test": {"workers": 2, "length": 37},
    },
    tolerance=0.0,  # reading is exact
    clock="end_to_end",
)


def read_all(files: list[Path], pool: ProcessPoolExecutor | Pool) -> Tensor:
    return torch.from_numpy(numpy.stack(list(pool.map(read, files))))


def epoch(files: list[Path], start_method: str) -> Tensor:
    """A record for each worker: they start, read, and end."""
    with ProcessPoolExecutor(len(files), multiprocessing.get_context(start_method)) as pool:
        return read_all(files, pool)


def prepare(files: list[Path]) -> Step:
    def step() -> Tensor:
        return epoch(files, "spawn")

    return step
