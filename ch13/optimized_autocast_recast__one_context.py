"""One autocast around all micro-batches remembers its casts: weights are cast once, gradients still each time."""

import torch
from torch import Tensor

from ch13.baseline_autocast_recast import accumulate, loss_of
from ch13.baseline_autocast_recast import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    leaves = [weight.detach().requires_grad_() for weight in weights]

    def step() -> tuple[Tensor, ...]:
        with torch.autocast(x.device.type, torch.bfloat16):
            return accumulate((loss_of(*batch, leaves) for batch in zip(x, target)), leaves)

    return step
