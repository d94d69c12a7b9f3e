"""The transpose of a matrix, copied."""

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
    def step() -> Tensor:
        return a.T.contiguous()

    return step
