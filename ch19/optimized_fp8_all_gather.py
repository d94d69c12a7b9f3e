"""Shards are cast once their common amax is known, and each byte is stored straight into every GPU that needs it."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch19.baseline_fp8_all_gather import scales
from ch19.baseline_fp8_all_gather import workload as workload
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=89)
BLOCK, WARPS, PROGRAMS = 8192, 8, 1056  # of amax: eight on each multiprocessor of an H200


@triton.jit
def raise_amax(x, words, index, n, RANKS: tl.constexpr, BLOCK: tl.constexpr):
    """The largest magnitude of these numbers, told to all ranks; positive floats are ordered as their bits are."""
    found = tl.zeros([BLOCK], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = block * BLOCK + tl.arange(0, BLOCK)
        found = tl.maximum(found, tl.abs(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)))
    largest = tl.max(found, 0).to(tl.int32, bitcast=True)
    for rank in tl.static_range(RANKS):
        word = tl.load(words + rank).to(tl.pointer_type(tl.int32)) + index
        tl.atomic_max(word, largest, sem="relaxed", scope="sys")


@triton.jit
def cast_to_all(x, scale, outs, first, n, RANKS: tl.constexpr, BLOCK: tl.constexpr):
    """The numbers as bytes, from `first` on of each rank's buffer; a power of two scales exactly."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32) * tl.load(scale)
    code = scaled.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    for rank in tl.static_range(RANKS):
        out = tl.multiple_of(tl.load(outs + rank).to(tl.pointer_type(tl.uint8)), 16)
        tl.store(out + first + at, code, mask=at < n)


def prepare(shards: list[Tensor]) -> Step:
    rank, ranks, device = dist.get_rank(), dist.get_world_size(), shards[0].device
    sizes = [ranks * x.numel() for x in shards]
    places = [sum(triton.cdiv(size, 16) * 16 for size in sizes[:index]) for index in range(len(sizes))]  # aligned
    held = symmetric_memory.empty(places[-1] + sizes[-1], dtype=torch.uint8, device=device)
    words = symmetric_memory.empty(len(shards), dtype=torch.int32, device=device)  # of float32, each weight's amax
    handle, amax = (symmetric_memory.rendezvous(buffer, dist.group.WORLD) for buffer in (held, words))
    outs, all_words = (torch.tensor(of.buffer_ptrs, device=device) for of in (handle, amax))
    gathered = [held[place:][:size].view(-1, x.shape[1]) for place, size, x in zip(places, sizes, shards)]
    starts = [place + rank * x.numel() for place, x in zip(places, shards)]
    found = torch.empty(len(shards), device=device)

    def exchange() -> None:
        for index, x in enumerate(shards):
            raise_amax[(PROGRAMS,)](x, all_words, index, x.numel(), RANKS=ranks, BLOCK=BLOCK, num_warps=WARPS)
        handle.barrier()  # all have told theirs, and nobody reads the last weights any more
        found.copy_(scales(words.view(torch.float32)))
        for x, scale, start in zip(shards, found.split(1), starts):
            grid = (triton.cdiv(x.numel(), BLOCK),)
            cast_to_all[grid](x, scale, outs, start, x.numel(), RANKS=ranks, BLOCK=BLOCK, num_warps=WARPS)
        words.zero_()
        handle.barrier()  # everywhere, all bytes have come, and the words are ready for the next step

    words.zero_()
    handle.barrier()
    again = replayable(exchange, device)

    def step() -> tuple[Tensor, ...]:
        again()
        return *gathered, found

    return step
