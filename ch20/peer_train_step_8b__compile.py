"""torch.compile of the whole loss, head and cross entropy included, with torch's fused AdamW."""

import torch
from torch import Tensor

from ch20.baseline_train_step_8b import workload as workload
from common.models.decoder import Shape, Weights, block
from common.models.training import loss_of, training
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1, memory_gib=52)


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    compiled = torch.compile(loss_of, fullgraph=True, dynamic=False)
    return training(weights, means, squares, tokens, count, shape, run=block, fused=True, loss_of=compiled)
