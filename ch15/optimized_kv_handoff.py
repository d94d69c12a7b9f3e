"""One kernel stores every page straight into its place in the next GPU's memory: nothing is packed or put away."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch15.baseline_kv_handoff import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
BLOCK, WARPS = 8192, 8


@triton.jit
def put_pages(pools, tables, buffers, after, pages, moved, numbers, BLOCK: tl.constexpr):
    """A piece of a page: `tables` has the pages that go, then the places where they come. A pool has `pages`."""
    piece, index, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    page, place = tl.load(tables + index), tl.load(tables + moved + index)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(pools + (layer * pages + page) * numbers + at, mask=at < numbers)
    out = tl.multiple_of(tl.load(buffers + after).to(tl.pointer_type(pools.dtype.element_ty)), 16)
    tl.store(out + (layer * moved + place) * numbers + at, row, mask=at < numbers)


def prepare(pools: Tensor, table: Tensor, places: Tensor) -> Step:
    rank, ranks, device = dist.get_rank(), dist.get_world_size(), pools.device
    (layers, pages, numbers), moved = pools.shape, len(table)
    out = symmetric_memory.empty((layers, moved, numbers), dtype=pools.dtype, device=device)
    tables = symmetric_memory.empty((2, moved), dtype=torch.int64, device=device)
    handle, others = (symmetric_memory.rendezvous(held, dist.group.WORLD) for held in (out, tables))
    buffers, after = torch.tensor(handle.buffer_ptrs, device=device), (rank + 1) % ranks
    told = others.get_buffer((rank - 1) % ranks, tables.shape, tables.dtype)[1]  # whose pages come here

    def step() -> Tensor:
        mine = torch.stack([table, places]).to(device)
        tables[0].copy_(mine[0])
        told.copy_(mine[1])
        handle.barrier()  # the sender knows the places here, and the pages of the last step may be overwritten
        grid = (triton.cdiv(numbers, BLOCK), moved, layers)
        put_pages[grid](pools, tables, buffers, after, pages, moved, numbers, BLOCK=BLOCK, num_warps=WARPS)
        handle.barrier()  # everywhere, all pages have come
        return out

    return step
