"""Threads copy elements straight across: reads run along rows, writes jump a whole row apart."""

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, rows, columns: {"a": draw.normal(rows, columns)},
    reference=lambda a: a.T,
    cost=lambda rows, columns: Cost(read=4 * rows * columns, write=4 * rows * columns),
    sizes={"bench": {"rows": 16384, "columns": 16384}, "test": {"rows": 97, "columns": 131}},
    tolerance=0.0,  # a copy is exact
    rungs="tile padded",
)


def prepare(a: Tensor) -> Step:
    transpose, out = load_cuda(__file__, "transpose_naive"), a.new_empty(a.shape[1], a.shape[0])

    def step() -> Tensor:
        transpose(a, out, *a.shape)
        return out

    return step
