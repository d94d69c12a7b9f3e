"""The reference cannot be computed."""

from torch import Tensor

from common.python.workload import Cost, Step, Workload


def reference(a: Tensor) -> Tensor:
    raise ValueError("no answer")


workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=reference,
    cost=lambda n: Cost(host_bytes=2 * 4 * n),
    sizes={"bench": {"n": 1 << 16}, "cpu": {"n": 1 << 12}, "test": {"n": 67}},
    tolerance=1e-6,
)


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        return a * 2

    return step
