"""Each worker may have its share of the cores, as affinity and control group allow them: one thread for each core."""

import torch
from torch import Tensor

from ch03.baseline_worker_thread_budget import WORKERS, start_workers
from ch03.baseline_worker_thread_budget import workload as workload
from common.python.base.machine import usable_cores
from common.python.workload import Metered


def share_out(index: int) -> None:
    torch.set_num_threads(max(usable_cores() // WORKERS, 1))


def prepare(clips: Tensor, filters: Tensor, bands: Tensor) -> Metered:
    return start_workers(clips, filters, bands, set_up=share_out)
