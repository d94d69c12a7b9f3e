"""The compiled and captured step with cuBLAS's products, which is what torch.compile's reduce-overhead mode runs."""

from functools import partial

import torch
from torch import Tensor

from ch20.baseline_decode_8b import generation
from ch20.baseline_decode_8b import workload as workload
from common.models.decoder import Shape, Weights
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1, memory_gib=60)
compiled = partial(torch.compile, fullgraph=True, dynamic=False)


def prepare(weights: Weights, shape: Shape, first: Tensor, new: int) -> Step:
    return generation(weights, shape, first, new, compiled=compiled, repeat=replayable)
