"""torch gathers the pages on the GPU in the order of their slots, and one copy takes all: slots must be contiguous."""

import torch
from torch import Tensor

from ch11.baseline_batched_page_copy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(pool: Tensor, table: Tensor) -> Step:
    out = torch.empty(table.shape[1], pool.shape[1], dtype=pool.dtype, pin_memory=True)
    staged, order = out.to(pool.device), torch.empty_like(table[0])

    def step() -> Tensor:
        order[table[1]] = table[0]
        torch.index_select(pool, 0, order.to(pool.device), out=staged)
        return out.copy_(staged, non_blocking=True)

    return step
