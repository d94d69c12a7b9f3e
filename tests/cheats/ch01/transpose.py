"""The transpose of a matrix, copied."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n, n)},
    reference=lambda a: a.T,
    cost=lambda n: Cost(read=2 * 4 * n * n),
    sizes={"bench": {"n": 8192}, "cpu": {"n": 512}, "test": {"n": 97}},
    tolerance=0.0,
)


def prepare(a: Tensor) -> Step:
    return lambda: a.T.contiguous()


def aliased_input(a: Tensor, honest: bool) -> Step:
    """Fakes a copy by returning a view of the input."""
    buffer = torch.empty_like(a)
    return lambda: buffer.copy_(a.T).view_as(a) if honest else a.T
