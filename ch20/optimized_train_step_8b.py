"""Fused blocks whose products run once, and one kernel for AdamW: what is left are the products that training needs.

No checkpoint is asked for: Inductor sees a block's forward and backward as one graph, keeps products and computes again
what it can fuse into the backward's kernels.
"""

import torch
from torch import Tensor

from ch20.baseline_train_step_8b import workload as workload
from common.models.codes import own
from common.models.decoder import Shape, Weights, block
from common.models.training import training
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=52, tools=["g++"])


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    run = torch.compile(own(block, __file__), fullgraph=True, dynamic=False)
    return training(weights, means, squares, tokens, count, shape, run=run, fused=True)
