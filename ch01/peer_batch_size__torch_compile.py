"""torch.compile in max-autotune mode on the one batch: it times Triton kernels against cuBLAS and keeps the best."""

import torch
from torch import Tensor

from ch01.baseline_batch_size import mlp
from ch01.baseline_batch_size import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(requests: Tensor, weights: list[Tensor]) -> Step:
    compiled = torch.compile(mlp, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(requests, weights)

    return step
