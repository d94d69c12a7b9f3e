"""torch.compile writes a Triton reduction over k of the products, and tunes its block."""

import torch
from torch import Tensor

from ch07.baseline_gemv_splitk import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def gemv(weight: Tensor, x: Tensor) -> Tensor:
    return (weight.float() * x.float()).sum(1).to(x.dtype)


def prepare(weight: Tensor, x: Tensor) -> Step:
    compiled = torch.compile(gemv, mode="max-autotune-no-cudagraphs", dynamic=False)

    def step() -> Tensor:
        return compiled(weight, x)

    return step
