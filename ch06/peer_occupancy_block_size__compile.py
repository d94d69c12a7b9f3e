"""torch.compile: a Triton kernel for the gate, whose block size is found by trying a few."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from ch06.baseline_occupancy_block_size import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def gate(a: Tensor, b: Tensor) -> Tensor:
    return silu(a) * b


def prepare(a: Tensor, b: Tensor) -> Step:
    compiled = torch.compile(gate, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(a, b)

    return step
