"""Pages of a cache leave the GPU by one copy each: a call of the host and a start of the copy engine for 16 KiB."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, pages: int, count: int, width: int) -> Inputs:
    """A cache, and the scheduler's table: which of its pages are to leave, and to which slots of host memory."""
    table = torch.stack([draw.host.permutation(pages)[:count], draw.host.permutation(count)])
    return {"pool": draw.normal(pages, width, dtype=torch.float16), "table": table}


def reference(pool: Tensor, table: Tensor) -> Tensor:
    pages, slots = table.to(pool.device)
    return pool[pages[slots.argsort()]].cpu()


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda pages, count, width: Cost(
        read=2 * count * width, pcie_bytes=2 * count * width, host_bytes=2 * count * width, items=count, unit="pages"
    ),
    sizes={
        "bench": {"pages": 8192, "count": 4096, "width": 8192},  # 64 MiB cross, 16 KiB a page
        "test": {"pages": 67, "count": 29, "width": 53},
    },
    tolerance=0.0,  # a copy is exact
    clock="end_to_end",
)


def by_host(file: str, pool: Tensor, table: Tensor) -> Step:
    """A step by the function of the .cu file beside `file`, which reads the table where it is."""
    copy_pages, (_, width) = load_cuda(file, "copy_pages"), pool.shape
    out = torch.empty(table.shape[1], width, dtype=pool.dtype, pin_memory=True)

    def step() -> Tensor:
        copy_pages(pool, out, table.data_ptr(), len(out), width)
        return out

    return step


def prepare(pool: Tensor, table: Tensor) -> Step:
    return by_host(__file__, pool, table)
