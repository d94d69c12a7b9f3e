"""Not measured yet: a graph of layers, each ended by one kernel that sums over ranks, adds the residual and norms."""

from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch20.baseline_tp_decode_70b import Tail, decoding
from ch20.baseline_tp_decode_70b import workload as workload
from common.models.decoder import EPSILON
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
WARPS = 16
THREADS = 32 * WARPS  # a thread has one word of each chunk, so that neighbours store into neighbouring places


@triton.jit
def send(place, word):
    """A strong store of one whole word: a rank that reads the new turn in it also has the number."""
    tl.inline_asm_elementwise(
        "st.relaxed.sys.global.b32 [$1], $2;", "=r,l,r", [place, word], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def reduce_add_norm(
    part, inboxes, inbox, turns, states, gain, summed, normed, width, rank, epsilon,
    RANKS: tl.constexpr, CHUNKS: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """One row. A word is a bfloat16 above the number of its turn, as in chapter 4's symmetric_allreduce.

    There are two sets of words, for odd and even turns: a rank in a turn has seen all others in the turn before.
    """
    row, rows = tl.program_id(0), tl.num_programs(0)
    place = tl.arange(0, CHUNKS)[:, None] * THREADS + tl.arange(0, THREADS)[None, :]
    near = tl.minimum(place, width - 1)  # past the end: the last number again
    turn = tl.load(turns + row) + 1  # kept on the GPU, so that a graph can replay this kernel
    here, box = row * width + near, ((turn & 1) * RANKS * rows + row) * width + near
    word = (tl.load(part + here).to(tl.int16, bitcast=True).to(tl.int32) << 16) | (turn & 0xFFFF)
    for distance in tl.static_range(1, RANKS + 1):  # itself last: its own words need no link
        theirs = tl.load(inboxes + (rank + distance) % RANKS).to(tl.pointer_type(tl.int32))
        send(theirs + box + rank * rows * width, word)
    total, scale = tl.load(states + here).to(tl.float32), tl.load(gain + near).to(tl.float32)
    for sender in tl.static_range(RANKS):  # all ranks sum in the same order
        words = tl.load(inbox + box + sender * rows * width, volatile=True)
        while tl.max((words ^ turn) & 0xFFFF) != 0:
            words = tl.load(inbox + box + sender * rows * width, volatile=True)
        total += ((words >> 16) << 16).to(tl.float32, bitcast=True)
    size = tl.sum(tl.where(place < width, total * total, 0.0)) / width
    tl.store(summed + here, total.to(tl.bfloat16))
    tl.store(normed + here, (total * tl.rsqrt(size + epsilon) * scale).to(tl.bfloat16))
    tl.store(turns + row, turn)  # all threads have read it: the sum was a barrier


def one_kernel(x: Tensor) -> Tail:
    """The whole tail, between buffers that are overwritten at the next one."""
    (rows, width), rank, ranks = x.shape, dist.get_rank(), dist.get_world_size()
    inbox = symmetric_memory.empty((2, ranks, rows, width), dtype=torch.int32, device=x.device)
    handle = symmetric_memory.rendezvous(inbox, dist.group.WORLD)
    inbox.zero_()  # there is no turn 0
    handle.barrier()  # or a fast rank's first words might be among what a slow one zeroes
    inboxes = torch.tensor(handle.buffer_ptrs, device=x.device)
    turns, summed, normed = inbox.new_zeros(rows), torch.empty_like(x), torch.empty_like(x)
    sizes = ranks, triton.next_power_of_2(triton.cdiv(width, THREADS)), THREADS

    def tail(part: Tensor, states: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        reduce_add_norm[(rows,)](
            part, inboxes, inbox, turns, states, gain, summed, normed, width, rank, EPSILON, *sizes, num_warps=WARPS
        )
        return summed, normed

    return tail


def prepare(**given: Any) -> Step:
    return decoding(given, one_kernel(given["x"]), replayable)
