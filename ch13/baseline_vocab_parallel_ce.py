"""Each rank has the logits of its part of the vocabulary; all gather them whole, and all compute the same loss."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, width: int, vocabulary: int) -> Inputs:
    """The same hidden states and targets on all ranks, and this rank's rows of the head."""
    return {
        "x": draw.shared.normal(tokens, width, dtype=torch.bfloat16),
        "target": draw.shared.integers(tokens, high=vocabulary),
        "head": draw.normal(vocabulary // draw.ranks, width, std=width**-0.5, dtype=torch.bfloat16),
    }


def reference(rank: int, x: list[Tensor], target: list[Tensor], head: list[Tensor]) -> Tensor:
    parts = zip(x[rank].split(512), target[rank].split(512))  # half a GiB of logits at a time
    return torch.cat([cross_entropy(a @ torch.cat(head).T, b, reduction="none") for a, b in parts])


def cost(tokens: int, width: int, vocabulary: int, ranks: int = 2) -> Cost:
    """Two numbers of each token cross the link: what its logits add up to, and the target's."""
    rows = vocabulary // ranks
    return Cost(
        flops=2 * tokens * width * rows,
        dtype="bf16",
        read=2 * width * (tokens + rows),
        write=4 * tokens,
        nvlink_bytes=8 * tokens,
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"tokens": 4096, "width": 4096, "vocabulary": 131072},
        "test": {"tokens": 37, "width": 40, "vocabulary": 108},
    },
    tolerance=2e-3,  # logits are rounded to bfloat16, and stand beside losses of 12
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor, target: Tensor, head: Tensor) -> Step:
    gathered = x.new_empty(dist.get_world_size(), len(x), len(head))

    def step() -> Tensor:
        dist.all_gather_into_tensor(gathered, (x @ head.T)[None])
        logits = gathered.transpose(0, 1).flatten(1)
        return cross_entropy(logits.float(), target, reduction="none")

    return step
