"""Leaves one more thread than there was."""

import torch
from torch import Tensor

from ch01.baseline_threads_changed import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        torch.set_num_threads(torch.get_num_threads() + 1)
        return a * 2

    return step
