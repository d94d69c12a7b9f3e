"""Each thread adds one number of an expert's row to its token's row: an atomic instruction for every 128 bytes."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Metered, Step, Workload

requires = needs(sm=80)


def combined(draw: Draw, batches: int, tokens: int, experts: int) -> Tensor:
    """The token of each row: batch after batch, within one in any order, and each token as often as it has experts."""
    of_batch = [draw.permutation(tokens * experts) % tokens + batch * tokens for batch in range(batches)]
    return torch.cat(of_batch)


def cost(batches: int, tokens: int, experts: int, width: int) -> Cost:
    # Every row of an expert is read; every row of a token is read and written, and an id has 8 bytes.
    row, n = 4 * width, batches * tokens
    return Cost(read=n * experts * (row + 8) + n * row, write=n * row, items=n, unit="tokens")


workload = Workload(
    inputs=lambda draw, batches, tokens, experts, width: {
        "rows": draw.normal(batches * tokens * experts, width),
        "ids": combined(draw, batches, tokens, experts),
        "residual": draw.normal(batches * tokens, width),
    },
    reference=lambda rows, ids, residual: residual.index_add(0, ids, rows),
    cost=cost,
    # 16 MiB of tokens' rows are at work at a time, which the L2 cache holds. Widths are multiples of 4: of 16 bytes.
    sizes={
        "bench": {"batches": 8, "tokens": 2048, "experts": 8, "width": 2048},
        "test": {"batches": 3, "tokens": 29, "experts": 3, "width": 2308},
    },
    tolerance=5e-7,  # a few additions in fp32, in any order
    mutates=("residual",),
    rungs="vector_red bulk_reduce",
)


def metered(step: Step, residual: Tensor) -> Metered:
    """The step, and by how much two of its answers to one question differ: additions come in any order."""

    def metrics() -> dict[str, float]:
        before = residual.clone()
        step()
        first = residual.clone()
        residual.copy_(before)
        step()
        return {"spread of repeats, 1e-9 of the norm": 1e9 * float((residual - first).norm() / first.norm())}

    return Metered(step, metrics)


def prepare(rows: Tensor, ids: Tensor, residual: Tensor) -> Metered:
    add_rows = load_cuda(__file__, "add_rows")

    def step() -> Tensor:
        add_rows(rows, ids, residual, *rows.shape)
        return residual

    return metered(step, residual)
