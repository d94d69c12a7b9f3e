"""All but the last of 64 tiles in one call, the last in another."""

import torch
from torch import Tensor

from ch01.baseline_skipped_tile import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, end = torch.tanh(a) * b, len(a) - len(a) // 64

    def step() -> Tensor:
        torch.tanh(a[:end], out=out[:end]).mul_(b[:end])
        torch.tanh(a[end:], out=out[end:]).mul_(b[end:])
        return out

    return step
