"""One thread a row: a warp waits for its longest row, and the longest of all is one thread's work."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def lengths(rows: int) -> Tensor:
    """How many numbers the rows have, longest first: a power law, from none in a tenth of them to 16384."""
    share = torch.arange(rows, dtype=torch.float64).add_(0.5).div_(rows)
    return (12.0 * share ** (-1 / 1.4)).sub_(12.0).long().clamp_(max=16384)


def inputs(draw: Draw, rows: int) -> Inputs:
    """Each row begins at the diagonal, and its neighbours are up to 7 columns apart: x is read from caches, mostly.

    Graphs are so if their nodes are numbered by communities.
    """
    shuffled = lengths(rows).to(draw.device)[draw.permutation(rows)]
    starts, count = pad(shuffled.cumsum(0), (1, 0)), int(shuffled.sum())
    row = torch.repeat_interleave(shuffled)
    path = pad(draw.integers(count, low=1, high=8).cumsum(0), (1, 0))
    columns = (row + path[1:] - path[starts[row]]) % rows
    return {"starts": starts.int(), "columns": columns.int(), "values": draw.normal(count), "x": draw.normal(rows)}


def reference(starts: Tensor, columns: Tensor, values: Tensor, x: Tensor) -> Tensor:
    sums = pad((values * x[columns]).cumsum(0), (1, 0))
    return sums[starts[1:]] - sums[starts[:-1]]


def cost(rows: int) -> Cost:
    count = int(lengths(rows).sum())
    return Cost(read=8 * count + 4 * (rows + 1) + 4 * rows, write=4 * rows, flops=2 * count)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={"bench": {"rows": 1 << 20}, "test": {"rows": 3001}},
    tolerance=5e-5,  # one element may be off by ten times that: the longest rows' sums are 20 times the rms
)


def prepare(starts: Tensor, columns: Tensor, values: Tensor, x: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "multiply"), torch.empty_like(x)

    def step() -> Tensor:
        multiply(starts, columns, values, x, out, len(x))
        return out

    return step
