"""The share is of particular cores: each worker is bound to its own, so that none moves, and none visits another's."""

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
    os.sched_setaffinity(0, mine)  # of this thread; the OpenMP threads that it starts inherit it
    torch.set_num_threads(share)


def prepare(clips: Tensor, filters: Tensor, bands: Tensor) -> Metered:
    return start_workers(clips, filters, bands, set_up=bind)
