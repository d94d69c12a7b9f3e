"""Every rank gathers all keys and values before its queries attend: each GPU holds what all of them hold together."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.models.context_parallel import attend, attention
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, heads: int, width: int) -> Inputs:
    """The queries, keys and values of a rank's tokens."""
    return {
        # Flat scores, of standard deviation 1: sharper ones make a few outputs large beside the others' roundings.
        "q": draw.normal(tokens, heads, width, dtype=torch.bfloat16),
        "kv": draw.normal(tokens, 2, heads, width, dtype=torch.bfloat16),
    }


def cost(tokens: int, heads: int, width: int, ranks: int = 2) -> Cost:
    """A rank's queries by all ranks' keys and values; what crosses the link takes a thirtieth of the products' time."""
    numbers = tokens * heads * width
    flops, sent = 4 * heads * width * tokens * ranks * tokens, 4 * numbers * (ranks - 1)
    return Cost(flops=flops, dtype="bf16", read=6 * numbers, write=2 * numbers, nvlink_bytes=sent, items=tokens)


workload = Workload(
    inputs=inputs,
    reference=lambda rank, q, kv: attention(q[rank], torch.cat(kv)),
    cost=cost,
    sizes={
        "bench": {"tokens": 32768, "heads": 8, "width": 128},
        "test": {"tokens": 75, "heads": 3, "width": 64},
    },
    tolerance=0.02,  # bfloat16 rounds the shares, each part's output and their running mean
    gpus=2,
    clock="end_to_end",
    goal="memory",
)


def prepare(q: Tensor, kv: Tensor) -> Step:
    gathered = kv.new_empty(dist.get_world_size() * len(kv), *kv.shape[1:])

    def step() -> Tensor:
        dist.all_gather_into_tensor(gathered, kv)
        return attend(q, gathered)[0]

    return step
