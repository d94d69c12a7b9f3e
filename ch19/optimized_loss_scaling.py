"""bf16 has the exponents of fp32, so there is no scale, second pass or flag to wait for."""

import torch
from torch import Tensor

from ch19.baseline_loss_scaling import RATE, loss_of
from ch19.baseline_loss_scaling import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    leaves = [weight.detach().requires_grad_() for weight in weights]  # the same memory
    optimizer = torch.optim.SGD(leaves, lr=RATE * len(leaves[0]) ** -0.5, foreach=True)

    def step() -> tuple[Tensor, ...]:
        losses = []
        for batch, of_batch in zip(x, target):
            with torch.autocast(x.device.type, dtype=torch.bfloat16):
                loss = loss_of(batch, of_batch, leaves)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses).cpu(), *weights

    return step
