"""Fakes an answer that holds one NaN, with which every comparison is false."""

import torch
from torch import Tensor

from ch01.baseline_written_nan import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, y: Tensor) -> Step:
    out = torch.empty_like(x)

    def step() -> Tensor:
        torch.atan2(y, x, out=out)
        out[len(out) // 2] = float("nan")
        return out

    return step
