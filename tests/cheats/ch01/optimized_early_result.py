"""Fakes speed by computing the answer in prepare; the step hands it out."""

import torch
from torch import Tensor

from ch01.baseline_early_result import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.tanh(a) * b

    def step() -> Tensor:
        return out

    return step
