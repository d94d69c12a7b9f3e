"""Requests move to the next rank page by page: each one has a send and a receive of its own, asked for by the host."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, layers: int, requests: int, pages: int, numbers: int) -> Inputs:
    """Pools of twice as many pages, and tables that the host keeps, as a server does: which go, and where they come.

    The ranks are a ring, so that each one both sends and receives; a page has `numbers` of keys and of values together.
    """
    moved = requests * pages
    return {
        "pools": draw.normal(layers, 2 * moved, numbers, dtype=torch.bfloat16),
        "table": draw.host.permutation(2 * moved)[:moved].clone(),
        "places": draw.host.permutation(moved),
    }


def reference(rank: int, pools: list[Tensor], table: list[Tensor], places: list[Tensor]) -> Tensor:
    return pools[rank - 1][:, table[rank - 1][places[rank].argsort()]]


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda layers, requests, pages, numbers: Cost(
        nvlink_bytes=2 * layers * requests * pages * numbers, items=requests, unit="requests"
    ),
    sizes={
        # 64 tokens in a page, with 8 heads of 128 numbers
        "bench": {"layers": 4, "requests": 8, "pages": 32, "numbers": 2 * 64 * 8 * 128},
        "test": {"layers": 3, "requests": 3, "pages": 5, "numbers": 37},
    },
    tolerance=0.0,  # a copy is exact
    gpus=2,
    clock="end_to_end",
)


def prepare(pools: Tensor, table: Tensor, places: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    out = pools.new_empty(len(pools), len(table), pools.shape[2])

    def step() -> Tensor:
        for pool, room in zip(pools, out):
            pages = [dist.P2POp(dist.isend, pool[page], (rank + 1) % ranks) for page in table.tolist()]
            rooms = [dist.P2POp(dist.irecv, room[page], (rank - 1) % ranks) for page in places.tolist()]
            for work in dist.batch_isend_irecv([*pages, *rooms]):  # all of a layer's are one group
                work.wait()
        return out

    return step
