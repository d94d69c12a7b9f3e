"""torch.compile of the loss as it is written: one kernel forward and one backward, without fp32 tensors in memory."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch09.baseline_cross_entropy_grad import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets, reduction="sum")


def prepare(logits: Tensor, targets: Tensor) -> Step:
    compiled = torch.compile(loss_of, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
    leaf = logits.detach().requires_grad_()

    def step() -> tuple[Tensor, ...]:
        loss = compiled(leaf, targets)
        return loss.detach(), *torch.autograd.grad(loss, leaf)

    return step
