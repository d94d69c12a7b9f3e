"""A table on pages of 4 KiB: nearly every row is on a page that the TLB has forgotten, and is found by a page walk."""

import mmap

import numpy
import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, rows, width, picks: {
        "table": draw.host.normal(rows, width),
        "ids": draw.host.integers(picks, high=rows),
    },
    reference=lambda table, ids: table.index_select(0, ids),
    # At the rate of all cores: several threads could gather the rows, though these variants use one.
    cost=lambda rows, width, picks: Cost(host_bytes=picks * (2 * 4 * width + 8), items=picks, unit="rows"),
    # 1 GiB: 262,144 small pages or 512 huge ones, and a core's TLB has a few thousand entries. Rows of 32 bytes: of
    # longer ones memory's bandwidth would be the limit, not where each begins.
    sizes={
        "bench": {"rows": 1 << 25, "width": 8, "picks": 1 << 20},
        "cpu": {"rows": 1 << 21, "width": 8, "picks": 1 << 17},
        "test": {"rows": 997, "width": 33, "picks": 211},
    },
    tolerance=0.0,  # a gather is exact
    frozen=("table",),  # an embedding table that is loaded once
    as_drawn=("table", "ids"),  # rows are copied, not computed with: 1 GiB need not become 2 and cross to the GPU
    clock="end_to_end",
)


def on_pages(table: Tensor, advice: int) -> Tensor:
    """A copy in memory of its own, on the pages that madvise(2) is asked for."""
    # Private: Python's default is shared memory, which another switch (shmem_enabled) keeps on small pages.
    memory = mmap.mmap(-1, table.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)  # before the first write, which is when pages are made
    return torch.frombuffer(memory, dtype=table.dtype).view(table.shape).copy_(table)


def gather(table: Tensor, ids: Tensor) -> Step:
    """One thread's gather, as in a loader's worker; 32 threads would wait for bandwidth, and walk pages meanwhile."""
    out = table.new_empty(len(ids), table.shape[1])

    def step() -> Tensor:
        # With "raise", numpy would gather into a buffer of its own first, to leave `out` whole on an error.
        numpy.take(table.numpy(), ids.numpy(), axis=0, out=out.numpy(), mode="clip")
        return out

    return step


def prepare(table: Tensor, ids: Tensor) -> Step:
    # What the kernel does unasked where it gives huge pages on request only; where it gives them always, it is asked.
    return gather(on_pages(table, mmap.MADV_NOHUGEPAGE), ids)
