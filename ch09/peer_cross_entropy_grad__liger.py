"""Liger's cross entropy, which also writes the gradient over the logits in the forward pass."""

import torch
from torch import Tensor

from ch09.baseline_cross_entropy_grad import workload as workload
from common.python.requirements import imported, needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)
ops = imported("liger_kernel.ops", without="peft")


def prepare(logits: Tensor, targets: Tensor) -> Step:
    leaf = logits.detach().requires_grad_()

    def step() -> tuple[Tensor, ...]:
        # No weights of words, no target to ignore, no extra terms of the loss, and the sum over tokens, in fp16.
        loss, *_ = ops.LigerCrossEntropyFunction.apply(leaf, targets, None, -100, 0.0, 0.0, "sum")
        return loss.detach().float(), *torch.autograd.grad(loss, leaf)

    return step
