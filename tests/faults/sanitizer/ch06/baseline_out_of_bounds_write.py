"""Each element is doubled."""

from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a * 2,
    cost=lambda n: Cost(read=2 * 4 * n),
    sizes={"bench": {"n": 1 << 25}, "test": {"n": 1021}},
    tolerance=0.0,  # doubling is exact
)


def prepare(a: Tensor) -> Step:
    return lambda: a * 2
