"""Fakes speed by working only when the first elements of its inputs have changed since the last call."""

import torch
from torch import Tensor

from ch01.baseline_stale_checksum import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, seen = torch.empty_like(a), [float("nan")]

    def step() -> Tensor:
        checksum = float(a[0, 0] + b[0, 0])
        if checksum != seen[0]:
            torch.matmul(a, b, out=out)
        seen[0] = checksum
        return out

    return step
