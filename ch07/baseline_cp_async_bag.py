"""A warp walks down its bag: load an id, load its row, add it; no row is asked for before the last one is there."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def lengths(bags: int, most: int) -> Tensor:
    """Ids in each bag: from three quarters of `most` to all of it."""
    return most - torch.arange(bags) % (most // 4 + 1)


def inputs(draw: Draw, bags: int, most: int, width: int) -> Inputs:
    """Each row of the table but row 0 is in one bag. Id 0 is padding and ends a bag, as padding_idx=0 does in torch."""
    count = lengths(bags, most).to(draw.device)[draw.permutation(bags)]
    total = int(lengths(bags, most).sum())
    ids = torch.zeros(bags, most, dtype=torch.int64, device=draw.device)
    ids[torch.arange(most, device=draw.device) < count[:, None]] = draw.permutation(total) + 1
    return {"table": draw.normal(total + 1, width), "ids": ids}


def cost(bags: int, most: int, width: int) -> Cost:
    total = int(lengths(bags, most).sum())
    return Cost(read=total * (4 * width + 8), write=4 * bags * width, items=total, unit="rows")


requires = needs(sm=80)
workload = Workload(
    inputs=inputs,
    reference=lambda table, ids: F.embedding_bag(ids, table, mode="sum", padding_idx=0),
    cost=cost,
    # What 2,048 users saw last: 16 warps for each multiprocessor of an H200.
    sizes={"bench": {"bags": 2048, "most": 512, "width": 128}, "test": {"bags": 11, "most": 71, "width": 45}},
    tolerance=2e-6,  # 448 additions in fp32
)


def prepare(table: Tensor, ids: Tensor) -> Step:
    bag_sum, out = load_cuda(__file__, "bag_sum"), table.new_empty(len(ids), table.shape[1])

    def step() -> Tensor:
        bag_sum(table, ids, out, *ids.shape, table.shape[1])
        return out

    return step
