"""Each number takes the branches that its size asks for, and a warp goes through all that any of its lanes takes."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Step, Workload

requires = needs(sm=80)


def mixed(draw: Draw, n: int) -> Tensor:
    """Negative, small and large numbers in random order, at least 0.1 away from the poles at 0, -1, -2, ..."""
    kind, whole = (draw.integers(n, high=high, dtype=torch.int32) for high in (3, 8))
    unit = draw.uniform(n)
    negative, small, large = -(whole + 0.1 + 0.8 * unit), 0.1 + 5.9 * unit, 6.0 + 94.0 * unit
    return torch.where(kind == 0, negative, torch.where(kind == 1, small, large))


workload = Workload(
    inputs=lambda draw, n: {"x": mixed(draw, n)},
    reference=lambda x: torch.special.digamma(x),
    cost=lambda n: Cost(read=4 * n, write=4 * n, items=n, unit="numbers"),
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 70003}},
    tolerance=2e-6,  # a few roundings, and approximate quotients and logarithms
)


def prepare(x: Tensor) -> Step:
    digamma, out = load_cuda(__file__, "digamma"), torch.empty_like(x)

    def step() -> Tensor:
        digamma(x, out, len(x))
        return out

    return step
