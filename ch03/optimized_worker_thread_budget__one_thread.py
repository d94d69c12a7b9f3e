"""One thread a worker, as OMP_NUM_THREADS=1 or torch's DataLoader have it: safe, and some cores may stay idle."""

import torch
from torch import Tensor

from ch03.baseline_worker_thread_budget import start_workers
from ch03.baseline_worker_thread_budget import workload as workload
from common.python.workload import Metered


def prepare(clips: Tensor, filters: Tensor, bands: Tensor) -> Metered:
    return start_workers(clips, filters, bands, set_up=lambda index: torch.set_num_threads(1))
