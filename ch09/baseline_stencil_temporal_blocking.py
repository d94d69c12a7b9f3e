"""Each sweep of the stencil reads the whole grid from memory and writes it back, sixteen times."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)

SWEEPS = 16


def inputs(draw: Draw, rows: int, columns: int) -> Inputs:
    return {"grid": draw.normal(rows, columns)}


def reference(grid: Tensor) -> Tensor:
    """A point keeps half of its value and takes an eighth of each neighbour's; outside the grid all is zero."""
    for _ in range(SWEEPS):
        wide = pad(grid, (1, 1, 1, 1))
        around = wide[:-2, 1:-1] + wide[2:, 1:-1]
        grid = 0.5 * grid + 0.125 * (around + wide[1:-1, :-2] + wide[1:-1, 2:])
    return grid


workload = Workload(
    inputs=inputs,
    reference=reference,
    # The grid before the first sweep and after the last; what is between could stay on chip.
    cost=lambda rows, columns: Cost(read=4 * rows * columns, write=4 * rows * columns),
    sizes={"bench": {"rows": 8192, "columns": 8192}, "test": {"rows": 203, "columns": 236}},  # 268 MB
    tolerance=2e-6,
)


def prepare(grid: Tensor) -> Step:
    sweep, (rows, columns) = load_cuda(__file__, "sweep"), grid.shape
    buffers = [torch.empty_like(grid) for _ in range(2)]

    def step() -> Tensor:
        before = grid
        for number in range(SWEEPS):
            sweep(before, buffers[number % 2], rows, columns)
            before = buffers[number % 2]
        return before

    return step
