"""Operators that take all gradients as one list: a launch's blocks are dealt out over hundreds of tensors."""

import torch
from torch import Tensor

from ch01.baseline_grad_clip_foreach import LIMIT
from ch01.baseline_grad_clip_foreach import workload as workload
from common.python.workload import Step


def prepare(gradients: list[Tensor]) -> Step:
    def step() -> tuple[Tensor, ...]:
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_mul_(gradients, LIMIT / norm.clamp(min=LIMIT))
        return norm, *gradients

    return step
