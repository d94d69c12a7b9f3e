"""Looks a buffer up under the addresses of its inputs and fills it in every call."""

import torch
from torch import Tensor

from ch01.baseline_address_cache import workload as workload
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    buffers: dict[tuple[int, int], Tensor] = {}

    def step() -> Tensor:
        key = a.data_ptr(), b.data_ptr()
        if key not in buffers:
            buffers[key] = torch.empty_like(a)
        return torch.matmul(a, b, out=buffers[key])

    return step
