"""The angle of each point of the plane."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"x": draw.normal(n), "y": draw.normal(n)},
    reference=lambda x, y: torch.atan2(y, x),
    cost=lambda n: Cost(read=3 * 4 * n),
    sizes={"bench": {"n": 1 << 25}, "cpu": {"n": 1 << 18}, "test": {"n": 97}},
    tolerance=1e-5,
)


def prepare(x: Tensor, y: Tensor) -> Step:
    out = torch.empty_like(x)

    def step() -> Tensor:
        return torch.atan2(y, x, out=out)

    return step
