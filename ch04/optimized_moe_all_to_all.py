"""Tokens are stored straight into their experts' GPUs, counted there: no host reads a count, so a graph replays it."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch04.baseline_moe_all_to_all import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
RETURNING = 512  # programs for each sender: those of two are all on an H200 at once


@triton.jit
def send(x, to, counts, boxes, numbers, rank, room, width, BLOCK: tl.constexpr):
    """A token: its row goes to the next free place of this rank in its expert's box, and its number beside it."""
    token, at = tl.program_id(0), tl.arange(0, BLOCK)
    row = tl.load(x + token.to(tl.int64) * width + at, mask=at < width)
    there = tl.load(to + token)
    place = rank * room + tl.atomic_add(counts + there, 1, sem="relaxed")
    box = tl.multiple_of(tl.load(boxes + there).to(tl.pointer_type(x.dtype.element_ty)), 16)
    tl.store(box + place.to(tl.int64) * width + at, row, mask=at < width)
    tl.store(tl.load(numbers + there).to(tl.pointer_type(tl.int32)) + place, token)


@triton.jit
def scale_and_return(box, numbers, counts, gain, outs, rank, room, width, BLOCK: tl.constexpr):
    """Each row that a sender's count says has come goes back scaled, into its own row of that sender's output."""
    sender, at = tl.program_id(0), tl.arange(0, BLOCK)  # neighbours serve different senders: no link is idle meanwhile
    factor = tl.load(gain + at, mask=at < width).to(tl.float32)
    out = tl.multiple_of(tl.load(outs + sender).to(tl.pointer_type(gain.dtype.element_ty)), 16)
    count = tl.load(tl.load(counts + sender).to(tl.pointer_type(tl.int32)) + rank)
    for turn in range(tl.program_id(1), count, tl.num_programs(1)):
        place = sender * room + turn
        row = tl.load(box + place.to(tl.int64) * width + at, mask=at < width)
        token = tl.load(numbers + place).to(tl.int64)
        tl.store(out + token * width + at, (row.to(tl.float32) * factor).to(tl.bfloat16), mask=at < width)


def prepare(x: Tensor, to: Tensor, gain: Tensor) -> Step:
    (tokens, width), rank, ranks = x.shape, dist.get_rank(), dist.get_world_size()
    room = triton.cdiv(tokens, 8) * 8  # in a box: all tokens of a sender may come, and 8 numbers of 2 bytes are aligned
    rows = symmetric_memory.empty((1 + ranks, room, width), dtype=x.dtype, device=x.device)
    words = symmetric_memory.empty(ranks * room + ranks, dtype=torch.int32, device=x.device)
    handle, others = (symmetric_memory.rendezvous(held, dist.group.WORLD) for held in (rows, words))
    out, box = rows[0, :tokens], rows[1:]
    numbers, counts = words[:-ranks], words[-ranks:]
    outs, all_numbers = (torch.tensor(held.buffer_ptrs, device=x.device) for held in (handle, others))
    boxes, all_counts, block = outs + rows[0].nbytes, all_numbers + numbers.nbytes, triton.next_power_of_2(width)

    def exchange() -> None:
        send[(tokens,)](x, to, counts, boxes, all_numbers, rank, room, width, BLOCK=block, num_warps=4)
        handle.barrier()  # everywhere, all rows have come
        scale_and_return[(ranks, RETURNING)](
            box, numbers, all_counts, gain, outs, rank, room, width, BLOCK=block, num_warps=8
        )
        handle.barrier()  # everywhere, all results have come, and the boxes may be filled again
        counts.zero_()

    counts.zero_()
    exchange()  # Triton compiles at the first call, which a capture forbids
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exchange()
    held = exchange, graph  # a graph has addresses; what lies there lives as long as the function that was recorded

    def step() -> Tensor:
        held[1].replay()
        return out

    return step
