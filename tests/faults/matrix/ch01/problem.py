"""The problem that these pairs share: each element is doubled."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a * 2,
    cost=lambda n: Cost(read=2 * 4 * n),
    sizes={"bench": {"n": 1 << 16}, "cpu": {"n": 1 << 12}, "test": {"n": 67}},
    tolerance=1e-6,
)


def prepare(a: Tensor) -> Step:
    return lambda: a * 2


def repeated(times: int, a: Tensor) -> Step:
    """The same work, over and over."""
    out = torch.empty_like(a)

    def step() -> Tensor:
        for _ in range(times):
            torch.add(a, a, out=out)
        return out

    return step
