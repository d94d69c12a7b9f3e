"""Fused blocks whose products run once, and one kernel for AdamW: what is left are the products that training needs.

No checkpoint is asked for: Inductor sees a block's forward and backward as one graph, keeps products and computes again
what it can fuse into the backward's kernels.
"""

from typing import Any

import torch
from torch import Tensor

from ch20.baseline_train_step_8b import training
from ch20.baseline_train_step_8b import workload as workload
from common.models.decoder import Shape, Weights, block
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=100, tools=["g++"])


def own(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor, attend: Any) -> Tensor:
    """The block in code of this file: torch keeps and counts what it compiles by code, which variants would share."""
    return block(layer, shape, x, cos, sin, attend)


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    run = torch.compile(own, fullgraph=True, dynamic=False)
    return training(weights, means, squares, tokens, count, shape, run=run, fused=True)
