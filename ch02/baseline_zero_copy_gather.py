"""The CPU gathers the rows into a page-locked buffer, which then crosses PCIe: each row is handled three times."""

import torch
from torch import Tensor

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(gpus=1)


def inputs(draw: Draw, rows: int, count: int, width: int) -> Inputs:
    """A table of embeddings too large for the GPU, and the rows that a sampler on the GPU asks for, each once."""
    return {"table": draw.host.normal(rows, width), "ids": draw.permutation(rows)[:count].int()}


workload = Workload(
    inputs=inputs,
    reference=lambda table, ids: table[ids],
    cost=lambda rows, count, width: Cost(
        pcie_bytes=4 * count * width, host_bytes=4 * count * width, read=4 * count, write=4 * count * width
    ),
    sizes={
        "bench": {"rows": 1 << 19, "count": 1 << 17, "width": 128},  # 512 bytes a row, 256 MiB, of which a quarter
        "test": {"rows": 1013, "count": 307, "width": 37},
    },
    tolerance=0.0,  # a copy is exact
    frozen=("table",),
    clock="end_to_end",
)


def prepare(table: Tensor, ids: Tensor) -> Step:
    gathered = torch.empty(len(ids), table.shape[1], pin_memory=True)
    out = torch.empty_like(gathered, device=ids.device)

    def step() -> Tensor:
        torch.index_select(table, 0, ids.cpu(), out=gathered)
        return out.copy_(gathered, non_blocking=True)

    return step
