"""Tokens go to their experts' ranks in boxes of a fixed size, twice the average, so that none has to be dropped."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

FACTOR = 2  # places in a box, over the tokens that it holds on average


def inputs(draw: Draw, tokens: int, width: int) -> Inputs:
    """Tokens, the rank of each one's expert, and this rank's expert, which scales each feature."""
    return {
        "x": draw.normal(tokens, width, dtype=torch.bfloat16),
        "to": draw.integers(tokens, high=draw.ranks),
        # At most 1: no product reaches 8 (the normal noise of a GPU ends at 6.8), where a rounding error would double.
        "gain": draw.uniform(width, low=0.5, high=1.0, dtype=torch.bfloat16),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda rank, x, to, gain: x[rank] * torch.stack(gain)[to[rank]],
    # A rank sends the tokens of other ranks' experts (with two ranks half of its own) there and back.
    cost=lambda tokens, width, ranks=2: Cost(
        nvlink_bytes=2 * (ranks - 1) / ranks * 2 * tokens * width,
        read=2 * tokens * width,
        write=2 * tokens * width,
        items=tokens,
        unit="tokens",
    ),
    sizes={"bench": {"tokens": 32768, "width": 4096}, "test": {"tokens": 211, "width": 37}},
    tolerance=0.005,  # one product, rounded to bfloat16
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor, to: Tensor, gain: Tensor) -> Step:
    ranks, places = dist.get_world_size(), torch.arange(len(x), device=x.device)
    box = -(-FACTOR * len(x) // ranks)
    sent, received, returned = (x.new_empty(ranks * box, x.shape[1]) for _ in range(3))
    numbers, out = torch.arange(ranks, device=x.device), torch.empty_like(x)

    def step() -> Tensor:
        rank_of, order = to.sort(stable=True)
        first = torch.searchsorted(rank_of, numbers)
        slot = rank_of * box + places - first[rank_of]
        sent[slot] = x[order]
        dist.all_to_all_single(received, sent)
        received.mul_(gain)
        dist.all_to_all_single(returned, received)
        out[order] = returned[slot]
        return out

    return step
