"""A server process imports the program and numpy once; workers are forked from it, and find both in their memory."""

import multiprocessing
from pathlib import Path

from torch import Tensor

from ch03.baseline_worker_start import epoch
from ch03.baseline_worker_start import workload as workload
from common.python.workload import Step


def prepare(files: list[Path]) -> Step:
    # It starts with the first worker, and must only import: a fork does not copy the threads that work would start.
    multiprocessing.set_forkserver_preload(["__main__", "numpy", "concurrent.futures.process"])

    def step() -> Tensor:
        return epoch(files, "forkserver")

    return step
