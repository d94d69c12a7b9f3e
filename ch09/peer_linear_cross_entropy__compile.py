"""torch.compile of the head as it is written: no fp32 copy of the logits is left, but they and their gradient are."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch09.baseline_linear_cross_entropy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def loss_of(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight).float(), targets)


def prepare(hidden: Tensor, weight: Tensor, targets: Tensor) -> Step:
    compiled = torch.compile(loss_of, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
    leaves = [hidden.detach().requires_grad_(), weight.detach().requires_grad_()]

    def step() -> tuple[Tensor, ...]:
        loss = compiled(*leaves, targets)
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return step
