"""Inductor fuses what stands between a block's products into a few kernels, but all of them are still launched."""

from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from ch20.baseline_decode_8b import generation
from ch20.baseline_decode_8b import workload as workload
from common.models.decoder import Shape, Weights
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(memory_gib=60, tools=["g++"])


@cache
def own(code: FunctionType) -> FunctionType:
    """A copy for this file: torch keeps and counts what it compiles by code object, which variants would share."""
    return FunctionType(code.__code__.replace(), code.__globals__, code.__name__)


def compiled(code: FunctionType) -> Any:
    return torch.compile(own(code), fullgraph=True, dynamic=False)


def prepare(weights: Weights, shape: Shape, first: Tensor, new: int) -> Metered:
    return generation(weights, shape, first, new, compiled=compiled)
