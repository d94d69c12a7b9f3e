"""A block of threads copies each page through registers, 16 bytes a load and 16 bytes a store."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, pages: int, page: int) -> Inputs:
    """A pool of keys and values, and the ids of half of its pages, each once and in random order."""
    return {"pool": draw.normal(2 * pages, page, dtype=torch.bfloat16), "ids": draw.permutation(2 * pages)[:pages]}


requires = needs(sm=80)
workload = Workload(
    inputs=inputs,
    reference=lambda pool, ids: pool[ids],
    cost=lambda pages, page: Cost(read=pages * (2 * page + 8), write=2 * pages * page),
    # A page is 4 KiB: 16 tokens, and one head of 128 numbers, which is what one of eight GPUs holds. Bulk copies want
    # pages of whole 16 bytes.
    sizes={"bench": {"pages": 131072, "page": 2048}, "test": {"pages": 1001, "page": 88}},
    tolerance=0.0,  # a copy is exact
    as_drawn=("pool",),
)


def prepare(pool: Tensor, ids: Tensor) -> Step:
    gather, out = load_cuda(__file__, "gather"), pool.new_empty(len(ids), pool.shape[1])

    def step() -> Tensor:
        gather(pool, ids, out, *out.shape)
        return out

    return step
