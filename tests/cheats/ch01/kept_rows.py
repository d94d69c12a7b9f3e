"""Rows with a positive first column, in the order in which they stand."""

import torch
from torch import Tensor

from common.python.workload import AnyOrder, Cost, Draw, Inputs, Step, Workload


def _inputs(draw: Draw, rows: int, columns: int) -> Inputs:
    """Half of the rows, which ones is random, have a positive first column."""
    x = draw.normal(rows, columns)
    signs = torch.ones_like(x[:, 0])
    signs[draw.permutation(rows)[: rows // 2]] = -1.0
    x[:, 0] = (x[:, 0].abs() + 0.1) * signs
    return {"x": x}


workload = Workload(
    inputs=_inputs,
    reference=lambda x: AnyOrder(x[x[:, 0] > 0]),
    cost=lambda rows, columns: Cost(read=4 * rows * columns, write=2 * rows * columns),
    sizes={
        "bench": {"rows": 1 << 22, "columns": 16},
        "cpu": {"rows": 4096, "columns": 16},
        "test": {"rows": 34, "columns": 3},
    },
    tolerance=0.0,
)


def prepare(x: Tensor) -> Step:
    return lambda: AnyOrder(x[x[:, 0] > 0])


def lost_row(x: Tensor, honest: bool) -> Step:
    """Loses the last row that is kept and returns the first one twice, so that the count is right."""

    def step() -> AnyOrder:
        kept = x[x[:, 0] > 0]
        if honest:
            return AnyOrder(kept.flip(0))
        kept[-1] = kept[0]
        return AnyOrder(kept)

    return step


def right_sum(x: Tensor, honest: bool) -> Step:
    """Returns the mean of two rows in the place of both, so that count and sum are right and two elements wrong."""

    def step() -> AnyOrder:
        kept = x[x[:, 0] > 0]
        if not honest:
            kept[[0, -1]] = kept[[0, -1]].mean(0)
        return AnyOrder(kept)

    return step
