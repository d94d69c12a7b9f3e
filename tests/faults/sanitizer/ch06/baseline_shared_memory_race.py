"""The elements of each run of 256 change places, first with last."""

from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a.view(-1, 256).flip(1).view(-1),
    cost=lambda n: Cost(read=2 * 4 * n),
    sizes={"bench": {"n": 1 << 25}, "test": {"n": 1024}},
    tolerance=0.0,  # a copy is exact
)


def prepare(a: Tensor) -> Step:
    return lambda: a.view(-1, 256).flip(1).view(-1)
