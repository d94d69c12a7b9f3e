"""torch.compile: it sees the four operations and writes one Triton kernel for them."""

import torch
from torch import Tensor

from ch01.baseline_arithmetic_intensity import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor) -> Step:
    def four_operations(x: Tensor) -> Tensor:
        return (1.5 * x + 0.25).clamp(-1.0, 2.0).square() + x

    compiled = torch.compile(four_operations, dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(x)

    return step
