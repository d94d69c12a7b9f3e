"""torch.index_select along the first dimension."""

import torch
from torch import Tensor

from ch07.baseline_bulk_block_gather import workload as workload
from common.python.workload import Step


def prepare(pool: Tensor, ids: Tensor) -> Step:
    out = pool.new_empty(len(ids), pool.shape[1])

    def step() -> Tensor:
        return torch.index_select(pool, 0, ids, out=out)

    return step
