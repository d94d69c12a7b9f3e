"""Leaves every global generator at the same state."""

import random

import torch
from torch import Tensor

from ch01.baseline_rng_changed import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        torch.manual_seed(0)
        random.seed(0)
        return a * 2

    return step
