"""A block is repeated 1,024 times."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.integers(n, high=127, dtype=torch.int8)},
    reference=lambda a: a.repeat(1 << 10),
    cost=lambda n: Cost(read=1025 * n),
    sizes={"bench": {"n": 1 << 20}, "cpu": {"n": 1 << 10}, "test": {"n": 67}},
    tolerance=0.0,
)


def prepare(a: Tensor) -> Step:
    return lambda: a.expand(1 << 10, -1).reshape(-1)
