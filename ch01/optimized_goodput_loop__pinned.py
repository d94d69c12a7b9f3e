"""Batches leave page-locked memory by asynchronous copies: nothing in the loop waits (and updates are multi-tensor)."""

import torch
from torch import Tensor
from torch.nn import Parameter

from ch01.baseline_goodput_loop import RATE, page_lock, reconstruction_loss
from ch01.baseline_goodput_loop import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(images: Tensor, parameters: list[Tensor]) -> Step:
    page_lock(images)
    trained: list[Tensor] = [Parameter(parameter) for parameter in parameters]
    device = parameters[0].device

    def step() -> tuple[Tensor, ...]:
        losses = []
        for batch in images:
            loss = reconstruction_loss(batch.to(device, non_blocking=True), trained)
            gradients = torch.autograd.grad(loss, trained)
            with torch.no_grad():
                torch._foreach_add_(trained, gradients, alpha=-RATE)
            losses.append(loss.detach())
        return (torch.stack(losses), *parameters)

    return step
