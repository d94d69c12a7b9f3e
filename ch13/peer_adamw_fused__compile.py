"""torch.compile of the update over lists: Inductor writes multi-tensor kernels that touch memory once."""

import torch
from torch import Tensor

from ch13.baseline_adamw_fused import BETA1, BETA2, DECAY, EPSILON, RATE
from ch13.baseline_adamw_fused import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


@torch.compile(fullgraph=True, dynamic=False)
def adamw(
    parameters: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    rate: Tensor,
    root: Tensor,
) -> None:
    torch._foreach_mul_(parameters, 1 - RATE * DECAY)
    torch._foreach_lerp_(means, gradients, 1 - BETA1)
    torch._foreach_mul_(squares, BETA2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - BETA2)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_div_(roots, root)
    torch._foreach_add_(roots, EPSILON)
    changes = torch._foreach_div(means, roots)
    torch._foreach_mul_(changes, rate)
    torch._foreach_sub_(parameters, changes)


def prepare(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], update: Tensor
) -> Step:
    rate, root = parameters[0].new_empty(()), parameters[0].new_empty(())  # each Python number would be compiled in

    def step() -> tuple[Tensor, ...]:
        rate.fill_(RATE / (1 - BETA1 ** int(update)))
        root.fill_((1 - BETA2 ** int(update)) ** 0.5)
        adamw(parameters, gradients, means, squares, rate, root)
        return *parameters, *means, *squares

    return step
