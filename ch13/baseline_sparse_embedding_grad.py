"""An SGD update of a table of two million rows, of which an eighth was used: its gradient is a table, mostly zeros."""

from math import exp

from torch import Tensor
from torch.nn.functional import embedding
from torch.optim import SGD

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE = 0.5


def inputs(draw: Draw, rows: int, width: int, ids: int) -> Inputs:
    return {
        "table": draw.normal(rows, width),
        "ids": draw.integers(ids, high=rows),
        "upstream": draw.normal(ids, width),  # the gradient of what was looked up
    }


def cost(rows: int, width: int, ids: int) -> Cost:
    """The rows that are used are read and written; of uniform ids their number is known to a fraction of a percent."""
    used = int(rows * (1 - exp(-ids / rows)))
    return Cost(read=ids * (8 + 4 * width) + 4 * used * width, write=4 * used * width)


workload = Workload(
    inputs=inputs,
    reference=lambda table, ids, upstream: table.index_add_(0, ids, upstream, alpha=-RATE),
    cost=cost,
    sizes={
        "bench": {"rows": 1 << 21, "width": 256, "ids": 1 << 18},
        "test": {"rows": 53, "width": 7, "ids": 29},
    },
    tolerance=1e-6,  # fp32 throughout; what a row gets may be added in any order
    rungs="sparse_tensor atomic",
    mutates=("table",),
)


def training_step(table: Tensor, ids: Tensor, upstream: Tensor, sparse: bool) -> Step:
    leaf = table.detach().requires_grad_()  # the same memory
    optimizer = SGD([leaf], lr=RATE)

    def step() -> Tensor:
        embedding(ids, leaf, sparse=sparse).backward(upstream)
        optimizer.step()
        optimizer.zero_grad()
        return table

    return step


def prepare(table: Tensor, ids: Tensor, upstream: Tensor) -> Step:
    return training_step(table, ids, upstream, sparse=False)
