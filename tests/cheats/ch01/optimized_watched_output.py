"""Fakes speed by working only when somebody touched its inputs or its output, as a check must."""

import torch
from torch import Tensor

from ch01.baseline_watched_output import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    seen: list[tuple[float, ...]] = [()]

    def look() -> tuple[float, ...]:
        return float(a[0, 0]), float(b[0, 0]), float(out[0, 0])

    def step() -> Tensor:
        if look() != seen[0]:
            torch.matmul(a, b, out=out)
            seen[0] = look()
        return out

    return step
