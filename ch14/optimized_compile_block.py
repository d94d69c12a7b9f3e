"""Inductor sees all blocks as one graph: what stands between two products becomes one kernel, forward and backward."""

import torch
from torch import Tensor

from ch14.baseline_compile_block import stack, train
from ch14.baseline_compile_block import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, slope: Tensor, weights: list[list[Tensor]]) -> Step:
    return train(torch.compile(stack, fullgraph=True, dynamic=False), x, slope, weights)
