"""Inductor fuses a block into a few kernels, among them its own matrix-vector products, but they are still launched."""

from functools import partial

import torch
from torch import Tensor

from ch20.baseline_decode_8b import generation
from ch20.baseline_decode_8b import workload as workload
from common.models.decoder import Shape, Weights, matvec
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=60, tools=["g++"])
# The option has it time several tiles for a reduction, which it writes a matrix-vector product as.
compiled = partial(torch.compile, options={"max_autotune_pointwise": True}, fullgraph=True, dynamic=False)


def prepare(weights: Weights, shape: Shape, first: Tensor, new: int) -> Step:
    return generation(weights, shape, first, new, matvec, compiled)
