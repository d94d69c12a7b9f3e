"""Each thread sums a row of its own: the 32 lanes of a warp read 32 different lines, and use 4 bytes of each."""

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, rows, columns: {"a": draw.normal(rows, columns)},
    reference=lambda a: a.sum(dim=1),
    cost=lambda rows, columns: Cost(read=4 * rows * columns, write=4 * rows, flops=rows * columns),
    sizes={"bench": {"rows": 1 << 20, "columns": 256}, "test": {"rows": 133, "columns": 299}},
    tolerance=2e-6,  # 256 floats added one after the other are off by 4e-7 of a sum's usual size
)


def prepare(a: Tensor) -> Step:
    sum_rows, out = load_cuda(__file__, "sum_by_threads"), a.new_empty(len(a))

    def step() -> Tensor:
        sum_rows(a, out, *a.shape)
        return out

    return step
