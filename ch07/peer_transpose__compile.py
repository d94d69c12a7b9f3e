"""torch.compile writes a two-dimensional Triton tile for the transposed copy and tunes its shape."""

import torch
from torch import Tensor

from ch07.baseline_transpose import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def transpose(a: Tensor) -> Tensor:
    return a.T.contiguous()


def prepare(a: Tensor) -> Step:
    compiled = torch.compile(transpose, mode="max-autotune-no-cudagraphs", dynamic=False)

    def step() -> Tensor:
        return compiled(a)

    return step
