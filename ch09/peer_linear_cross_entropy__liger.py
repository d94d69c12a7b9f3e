"""Liger's fused linear cross entropy: chunks of tokens whose gradients are computed already in the forward pass."""

import torch
from torch import Tensor

from ch09.baseline_linear_cross_entropy import workload as workload
from common.python.requirements import imported, needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)
ops = imported("liger_kernel.ops", without="peft")


def prepare(hidden: Tensor, weight: Tensor, targets: Tensor) -> Step:
    leaves = [hidden.detach().requires_grad_(), weight.detach().requires_grad_()]

    def step() -> tuple[Tensor, ...]:
        loss, *_ = ops.LigerFusedLinearCrossEntropyFunction.apply(*leaves, targets)
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return step
