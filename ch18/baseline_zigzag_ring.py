"""Each rank holds a contiguous part of a causal text: the last rank has most to do, and the first one waits for it."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.models.context_parallel import attend, attention
from common.models.link import ring
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, heads: int, width: int) -> Inputs:
    """The queries, keys and values of a rank's tokens, which come after those of the ranks before it."""
    return {
        # Scores of standard deviation 1.8: flatter ones make late outputs small beside the roundings of early ones, and
        # of sharper ones a single key rules some late rows, whose roundings are then too large.
        "q": draw.normal(tokens, heads, width, std=1.8, dtype=torch.bfloat16),
        "kv": draw.normal(tokens, 2, heads, width, dtype=torch.bfloat16),
    }


def cost(tokens: int, heads: int, width: int, ranks: int = 2) -> Cost:
    """A rank's share of all products. What has to cross the link takes a tenth of their time, and goes beside them."""
    numbers, pairs = tokens * heads * width, tokens * (ranks * tokens + 1) // 2
    return Cost(flops=4 * heads * width * pairs, dtype="bf16", read=6 * numbers, write=2 * numbers, items=tokens)


workload = Workload(
    inputs=inputs,
    reference=lambda rank, q, kv: attention(q[rank], torch.cat(kv), rank * len(q[rank])),
    cost=cost,
    sizes={
        "bench": {"tokens": 32768, "heads": 8, "width": 128},
        "test": {"tokens": 74, "heads": 3, "width": 64},
    },
    tolerance=0.04,  # bfloat16 rounds three times, also outputs 30 times the rms, of rows that few keys rule
    gpus=2,
    clock="end_to_end",
)


def merge(out: Tensor, total: Tensor, more: Tensor, more_total: Tensor) -> None:
    """Add what the same queries found among further keys; the first two are overwritten."""
    out.lerp_(more, torch.sigmoid(more_total - total).to(out.dtype))
    total.copy_(torch.logaddexp(total, more_total))


def prepare(q: Tensor, kv: Tensor) -> Step:
    rank, room = dist.get_rank(), kv.new_empty(2, *kv.shape)

    def step() -> Tensor:
        blocks = ring(kv, room)
        out, total = attend(q, next(blocks), causal=True)
        for turn, theirs in enumerate(blocks, start=1):  # theirs are of so many ranks before this one
            if turn <= rank:  # what comes later than all of this rank's tokens is passed on unread
                merge(out, total, *attend(q, theirs, causal=False))
        return out

    return step
