"""torch.compile under autocast, in max-autotune mode: autocast puts the casts in, the compiler may fuse them."""

import torch
from torch import Tensor

from ch01.baseline_matmul_precision import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def product(a: Tensor, b: Tensor) -> Tensor:
    with torch.autocast(a.device.type, torch.bfloat16):
        return torch.mm(a, b).float()


def prepare(a: Tensor, b: Tensor) -> Step:
    compiled = torch.compile(product, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(a, b)

    return step
