"""Weights are cast to bf16 once an update, and all micro-batches use the copy; its gradients are added to fp32 sums."""

import torch
from torch import Tensor

from ch13.baseline_autocast_recast import loss_of
from ch13.baseline_autocast_recast import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    working = [torch.empty_like(weight, dtype=torch.bfloat16, requires_grad=True) for weight in weights]
    sums = [torch.empty_like(weight) for weight in weights]

    def step() -> tuple[Tensor, ...]:
        with torch.no_grad():
            torch._foreach_copy_(working, weights)
        torch._foreach_zero_(sums)
        told = []
        for batch in zip(x, target):
            loss = loss_of(*batch, working)
            for total, gradient in zip(sums, torch.autograd.grad(loss, working)):
                total.add_(gradient)  # reads bf16: the widened gradient is never in memory
            told.append(loss.detach())
        return torch.stack(told), *sums

    return step
