"""One thread a number: it loads its row's id, then waits for 2 bytes, so a warp has only 64 bytes on their way."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, rows: int, columns: int, count: int) -> dict[str, Tensor]:
    # No id comes twice, so every row has to come from memory; rows are found in random order.
    return {
        "table": draw.normal(rows, columns, dtype=torch.bfloat16),
        "ids": draw.permutation(rows)[:count].clone(),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda table, ids: table[ids],
    cost=lambda rows, columns, count: Cost(read=2 * count * columns + 8 * count, write=2 * count * columns),
    # rows of 1 KiB; those of the test size do not begin at multiples of 16 bytes
    sizes={
        "bench": {"rows": 1 << 20, "columns": 512, "count": 1 << 19},
        "test": {"rows": 1009, "columns": 77, "count": 301},
    },
    tolerance=0.0,  # a copy is exact
    as_drawn=("table",),
)


def prepare(table: Tensor, ids: Tensor) -> Step:
    gather, out = load_cuda(__file__, "gather_rows"), table.new_empty(len(ids), table.shape[1])

    def step() -> Tensor:
        gather(table, ids, out, *out.shape)
        return out

    return step
