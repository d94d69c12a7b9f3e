"""Fakes speed by writing half as many bytes: float16 where the baseline writes float32."""

import torch
from torch import Tensor

from ch01.baseline_wrong_dtype import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a, dtype=torch.float16)

    def step() -> Tensor:
        return out.copy_(torch.tanh(a) * b)

    return step
