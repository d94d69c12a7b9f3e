"""One multi-tensor kernel (AdamW's fused=True) updates hundreds of tensors: each is read and written once."""

import torch
from torch import Tensor

from ch13.baseline_adamw_fused import BETA1, BETA2, DECAY, EPSILON, RATE
from ch13.baseline_adamw_fused import workload as workload
from common.python.workload import Step

HYPER = {"lr": RATE, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": EPSILON}


def prepare(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], update: Tensor
) -> Step:
    count = parameters[0].new_empty(())  # the kernel reads it from the device
    counts = [count] * len(parameters)

    def step() -> tuple[Tensor, ...]:
        count.fill_(int(update))
        torch._fused_adamw_(parameters, gradients, means, squares, [], counts, amsgrad=False, maximize=False, **HYPER)
        return *parameters, *means, *squares

    return step
