"""torch.compile of the sum: Inductor splits the rows, and tunes the tiles of both of its kernels."""

import torch
from torch import Tensor

from ch07.baseline_column_sum import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def column_sum(grad: Tensor) -> Tensor:
    return grad.sum(0, dtype=torch.float32)


def prepare(grad: Tensor) -> Step:
    compiled = torch.compile(column_sum, mode="max-autotune-no-cudagraphs", dynamic=False)

    def step() -> Tensor:
        return compiled(grad)

    return step
