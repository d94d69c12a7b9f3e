"""Each token adds its gradient to its row of the table by fp32 atomics, which meet at the rows of frequent tokens."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, vocab: int, width: int) -> Inputs:
    """Ids by Zipf's law: the n-th most frequent one is 1/n as frequent as the first. Which ids those are is random."""
    reach = (1 / torch.arange(1, vocab + 1, dtype=torch.float64, device=draw.device)).cumsum(0)
    rank = torch.searchsorted(reach, draw.uniform(tokens, dtype=torch.float64) * reach[-1]).clamp_(max=vocab - 1)
    return {
        "table": draw.normal(vocab, width),  # the embedding: only its shape matters here
        "ids": draw.permutation(vocab)[rank],
        "grads": draw.normal(tokens, width),
    }


def reference(table: Tensor, ids: Tensor, grads: Tensor) -> Tensor:
    return grads.new_zeros(table.shape).index_add_(0, ids, grads)


requires = needs(sm=80)
workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda tokens, vocab, width: Cost(read=tokens * (4 * width + 8), write=4 * vocab * width),
    sizes={
        "bench": {"tokens": 131072, "vocab": 50257, "width": 1024},
        "test": {"tokens": 1501, "vocab": 301, "width": 77},
    },
    # The error is 1e-6 of the norm. But one element may be off by ten times the tolerance, measured by the rms of all,
    # and those of the most frequent row, sums of 11,000 terms in any order, are a hundred times that rms.
    tolerance=3e-4,
    as_drawn=("table",),
)


def prepare(table: Tensor, ids: Tensor, grads: Tensor) -> Step:
    scatter_add, out = load_cuda(__file__, "scatter_add"), torch.empty_like(table)

    def step() -> Tensor:
        scatter_add(grads, ids, out, len(ids), *table.shape)
        return out

    return step
