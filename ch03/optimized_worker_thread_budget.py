"""One thread a worker, which keeps to its share of the cores: no barrier to wait at, and none visits another's core."""

import os

import torch
from torch import Tensor

from ch03.baseline_worker_thread_budget import WORKERS, start_workers
from ch03.baseline_worker_thread_budget import workload as workload
from common.python.base.machine import usable_cores
from common.python.workload import Metered


def bind(index: int) -> None:
    share = max(usable_cores() // WORKERS, 1)
    cores = sorted(os.sched_getaffinity(0))
    mine = {cores[(index * share + each) % len(cores)] for each in range(share)}
    os.sched_setaffinity(0, mine)
    torch.set_num_threads(1)


def prepare(clips: Tensor, filters: Tensor, bands: Tensor) -> Metered:
    return start_workers(clips, filters, bands, set_up=bind)
