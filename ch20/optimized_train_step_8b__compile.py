"""Inductor fuses what stands between a block's products, forward and backward; the forward still runs twice."""

from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ch20.baseline_train_step_8b import workload as workload
from common.models.codes import own
from common.models.decoder import Shape, Weights, block
from common.models.training import training
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=52, tools=["g++"])


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    compiled = torch.compile(own(block, __file__), fullgraph=True, dynamic=False)
    run = partial(checkpoint, compiled, use_reentrant=False, preserve_rng_state=False)
    return training(weights, means, squares, tokens, count, shape, run=run)
