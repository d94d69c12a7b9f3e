"""torch.compile: kernels that split each norm over many blocks, and one that reads everything again and scales it."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ch06.baseline_grid_sync_normalize import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor) -> Step:
    compiled = torch.compile(normalize, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(x)

    return step
