"""Takes the same checksum and works all the same."""

import torch
from torch import Tensor

from ch01.baseline_stale_checksum import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, seen = torch.empty_like(a), [float("nan")]

    def step() -> Tensor:
        seen[0] = float(a[0, 0] + b[0, 0])
        return torch.matmul(a, b, out=out)

    return step
