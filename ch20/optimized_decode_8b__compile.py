"""Inductor fuses what stands between a block's products into a few kernels, but all of them are still launched."""

from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from ch20.baseline_decode_8b import generation
from ch20.baseline_decode_8b import workload as workload
from common.models.codes import own
from common.models.decoder import Shape, Weights
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(memory_gib=44, tools=["g++"])


def compiled(code: FunctionType) -> Any:
    return torch.compile(own(code, __file__), fullgraph=True, dynamic=False)


def prepare(weights: Weights, shape: Shape, first: Tensor, earlier: Tensor, new: int) -> Metered:
    return generation(weights, shape, first, earlier, new, compiled=compiled)
