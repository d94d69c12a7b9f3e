"""torch.compile on the list and torch.cat: it allocates the result first and has each product write its part."""

import torch
from torch import Tensor

from ch01.baseline_preallocated_buffers import CHUNKS
from ch01.baseline_preallocated_buffers import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def expanded(compressed: Tensor, expand: Tensor) -> Tensor:
    return torch.cat([torch.mm(chunk, expand) for chunk in compressed.chunk(CHUNKS)])


def prepare(compressed: Tensor, expand: Tensor) -> Step:
    compiled = torch.compile(expanded, dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(compressed, expand)

    return step
