"""torch.compile: one Triton kernel for the nine shifted products, its block shape found by trying."""

import torch
from torch import Tensor

from ch06.baseline_stencil_block_shape import blurred
from ch06.baseline_stencil_block_shape import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(image: Tensor) -> Step:
    compiled = torch.compile(blurred, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(image)

    return step
