"""Gradients are views of one buffer that all GPUs can reach: one kernel averages a share and stores it everywhere."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch04.baseline_bucketed_allreduce import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
BLOCK, WARPS = 2048, 8


@triton.jit
def average_share(buffers, first, end, RANKS: tl.constexpr, BLOCK: tl.constexpr):
    """Of the numbers from `first` to `end`, which are this rank's to average, in all ranks' buffers."""
    at = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for rank in tl.static_range(RANKS):
        held = tl.multiple_of(tl.load(buffers + rank).to(tl.pointer_type(tl.float32)), 16)
        total += tl.load(held + at, mask=at < end)
    for rank in tl.static_range(RANKS):
        held = tl.multiple_of(tl.load(buffers + rank).to(tl.pointer_type(tl.float32)), 16)
        tl.store(held + at, total / RANKS, mask=at < end)


def prepare(gradients: list[Tensor]) -> Step:
    rank, ranks, sizes = dist.get_rank(), dist.get_world_size(), [gradient.numel() for gradient in gradients]
    flat = symmetric_memory.empty(sum(sizes), device=gradients[0].device)
    handle = symmetric_memory.rendezvous(flat, dist.group.WORLD)
    for gradient, part in zip(gradients, flat.split(sizes)):
        gradient.data = part.view_as(gradient).copy_(gradient)  # what writes a gradient fills the buffer
    buffers = torch.tensor(handle.buffer_ptrs, device=flat.device)
    share = triton.cdiv(len(flat), 4 * ranks) * 4  # all begin where 16 bytes do
    first, end = rank * share, min((rank + 1) * share, len(flat))

    def step() -> tuple[Tensor, ...]:
        handle.barrier()  # all gradients are there
        average_share[(triton.cdiv(share, BLOCK),)](buffers, first, end, RANKS=ranks, BLOCK=BLOCK, num_warps=WARPS)
        handle.barrier()  # everywhere, all shares have come
        return tuple(gradients)

    return step
