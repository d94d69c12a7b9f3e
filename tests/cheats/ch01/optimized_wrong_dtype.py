"""Fakes speed by writing half as many bytes: float16 where the baseline writes float32."""

import torch
from torch import Tensor

from ch01.baseline_wrong_dtype import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, y: Tensor) -> Step:
    out = torch.empty_like(x, dtype=torch.float16)

    def step() -> Tensor:
        return torch.atan2(y, x, out=out)

    return step
