"""One kernel, one trip: each number is stored into every GPU's memory beside its turn, which tells that it is there."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch04.baseline_symmetric_allreduce import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
BLOCK = 512  # a number for each thread. All blocks must be on the GPU at once, or who waits keeps out who sends:
# 128 of them are at `bench` size, and an H200 holds 528, which is half a MiB; a larger message would need a loop


@triton.jit
def send(place, word):
    """A strong store, whole and on its way at once, where a plain one may legally be split or held back."""
    tl.inline_asm_elementwise(
        "st.relaxed.sys.global.b32 [$1], $2;", "=r,l,r", [place, word], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def all_reduce(x, inboxes, inbox, turns, out, n, rank, RANKS: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    """A word is a bfloat16, which is the upper half of a float32, and the number of the turn in the lower half.

    So a word that has arrived says so itself: no fence, no flag behind the data, no barrier. There are two sets of
    words, for odd and even turns. A rank that is in a turn has seen all others in the turn before, so they have read
    what the set held two turns ago.
    """
    at = tl.minimum(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), n - 1)  # past the end: the last number again
    turn = tl.load(turns + tl.program_id(0)) + 1  # kept on the GPU, so that a graph can replay this kernel
    now = (turn & 1) * RANKS * n
    word = (tl.load(x + at).to(tl.int16, bitcast=True).to(tl.int32) << 16) | (turn & 0xFFFF)
    for distance in tl.static_range(1, RANKS + 1):  # the others first, then itself, so that all sum in the same order
        place = tl.load(inboxes + (rank + distance) % RANKS).to(tl.pointer_type(tl.int32))
        send(place + now + rank * n + at, word)
    sender = tl.arange(0, SLOTS)[:, None]  # their number rounded up to a power of two
    places, nothing = inbox + now + sender * n + at[None, :], turn & 0xFFFF
    words = tl.load(places, mask=sender < RANKS, other=nothing, volatile=True)
    while tl.max((words ^ turn) & 0xFFFF) != 0:
        words = tl.load(places, mask=sender < RANKS, other=nothing, volatile=True)
    total = tl.sum(((words >> 16) << 16).to(tl.float32, bitcast=True), axis=0)
    tl.store(out + at, total.to(tl.bfloat16))
    tl.debug_barrier()  # all threads have read the turn
    tl.store(turns + tl.program_id(0), turn)


def prepare(x: Tensor) -> Step:
    n, rank, ranks = x.numel(), dist.get_rank(), dist.get_world_size()
    inbox = symmetric_memory.empty((2, ranks, n), dtype=torch.int32, device=x.device)
    handle = symmetric_memory.rendezvous(inbox, dist.group.WORLD)
    inbox.zero_()  # there is no turn 0
    handle.barrier()  # or a fast rank's first words might be among what a slow one zeroes
    blocks, slots = triton.cdiv(n, BLOCK), triton.next_power_of_2(ranks)
    turns, out = torch.zeros(blocks, dtype=torch.int32, device=x.device), torch.empty_like(x)
    inboxes = torch.tensor(handle.buffer_ptrs, device=x.device)

    def step() -> Tensor:
        all_reduce[(blocks,)](x, inboxes, inbox, turns, out, n, rank, ranks, slots, BLOCK, num_warps=16)
        return out

    return step
