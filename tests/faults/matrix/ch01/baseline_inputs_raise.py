"""The inputs cannot be drawn."""

from torch import Tensor

from common.python.workload import Cost, Draw, Step, Workload


def inputs(draw: Draw, n: int) -> dict[str, Tensor]:
    raise ValueError(f"no {n} numbers")


workload = Workload(
    inputs=inputs,
    reference=lambda a: a * 2,
    cost=lambda n: Cost(host_bytes=2 * 4 * n),
    sizes={"bench": {"n": 1 << 16}, "cpu": {"n": 1 << 12}, "test": {"n": 67}},
    tolerance=1e-6,
)


def prepare(a: Tensor) -> Step:
    def step() -> Tensor:
        return a * 2

    return step
