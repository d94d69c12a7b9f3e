"""Each element of b is gated by the tanh of a."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n), "b": draw.normal(n)},
    reference=lambda a, b: a.tanh() * b,
    cost=lambda n: Cost(read=3 * 4 * n),
    sizes={"bench": {"n": 1 << 25}, "cpu": {"n": 1 << 18}, "test": {"n": 97}},
    tolerance=1e-5,
)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.tanh(a, out=out).mul_(b)

    return step
