"""One thread a worker, which keeps to its share of the cores: it moves between those, and visits no other's."""

import os

import torch
from torch import Tensor

from ch03.baseline_worker_thread_budget import WORKERS, start_workers
from ch03.baseline_worker_thread_budget import workload as workload
from common.python.base.machine import usable_cores
from common.python.workload import Metered

SHARE = max(usable_cores() // WORKERS, 1)


def bind(index: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(index * SHARE + each) % len(cores)] for each in range(SHARE)})
    torch.set_num_threads(1)


def prepare(clips: Tensor, filters: Tensor, bands: Tensor) -> Metered:
    return start_workers(clips, filters, bands, set_up=bind)
