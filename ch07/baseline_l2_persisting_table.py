"""Rows of a table are looked up at random and added to a stream, which pushes the table out of the L2 cache."""

from torch import Tensor, empty_like

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, n: int, rows: int, width: int) -> Inputs:
    return {"x": draw.normal(n, width), "ids": draw.integers(n, high=rows), "table": draw.normal(rows, width)}


requires = needs(sm=80)
workload = Workload(
    inputs=inputs,
    reference=lambda x, ids, table: x + table[ids],
    cost=lambda n, rows, width: Cost(read=n * (4 * width + 8) + 4 * rows * width, write=4 * n * width),
    # 24 MiB of table: three quarters of what an H100 sets aside. Between two uses of a row 51 MB of stream go by.
    sizes={"bench": {"n": 1 << 22, "rows": 196608, "width": 32}, "test": {"n": 1003, "rows": 57, "width": 19}},
    tolerance=1e-6,  # one addition in fp32
    isolated=True,  # a part of the L2 cache is set aside for a whole process
)


def prepare(x: Tensor, ids: Tensor, table: Tensor) -> Step:
    add_looked_up, out = load_cuda(__file__, "add_looked_up"), empty_like(x)

    def step() -> Tensor:
        add_looked_up(x, ids, table, out, *x.shape)
        return out

    return step
