"""One kernel stores all microbatches straight into the next GPU's memory, each with a flag of its own behind it."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch04.baseline_symmetric_put import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
BLOCK, WARPS = 8192, 8  # 16 KiB a block, and all 1,024 of a microbatch are on an H200 at once


@triton.jit
def put(x, buffers, flags, after, n, BLOCK: tl.constexpr):
    """The blocks start in this order, all of the first microbatch before those of the second."""
    microbatch, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.multiple_of(tl.load(buffers + after).to(tl.pointer_type(x.dtype.element_ty)), 16)
    first = microbatch.to(tl.int64) * n
    tl.store(place + first + at, tl.load(x + first + at, mask=at < n), mask=at < n)
    tl.debug_barrier()  # all threads of the block have stored, before one of them says so
    flag = tl.load(flags + after).to(tl.pointer_type(tl.int32)) + microbatch
    tl.atomic_add(flag, 1, sem="release", scope="sys")


@triton.jit
def wait(flags, blocks):
    """Until all blocks of a microbatch have arrived; the flag is then as it was."""
    while tl.atomic_cas(flags + tl.program_id(0), blocks, 0, sem="acquire", scope="sys") != blocks:
        pass


def prepare(x: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    out = symmetric_memory.empty(x.shape, dtype=x.dtype, device=x.device)  # which the GPU before this one writes
    arrived = symmetric_memory.empty(len(x), dtype=torch.int32, device=x.device)
    handle, counters = (symmetric_memory.rendezvous(held, dist.group.WORLD) for held in (out, arrived))
    arrived.zero_()
    buffers, flags = (torch.tensor(held.buffer_ptrs, device=x.device) for held in (handle, counters))
    after, n = (rank + 1) % ranks, x[0].numel()
    blocks = triton.cdiv(n, BLOCK)

    def step() -> Tensor:
        handle.barrier()  # what the last step received may be overwritten everywhere
        put[(blocks, len(x))](x, buffers, flags, after, n, BLOCK=BLOCK, num_warps=WARPS)
        wait[(len(x),)](arrived, blocks, num_warps=1)
        return out

    return step
