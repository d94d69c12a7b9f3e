"""torch.compile in max-autotune mode over all rows: the activation joins its product, the layers stay apart."""

import torch
from torch import Tensor

from ch02.baseline_depth_first_mlp import reference as network
from ch02.baseline_depth_first_mlp import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    compiled = torch.compile(network, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(x, weights)

    return step
