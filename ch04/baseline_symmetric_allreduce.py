"""NCCL sums a decoding step's activation: its protocol takes far more time than 128 KiB take on the link."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, tokens, width: {"x": draw.normal(tokens, width, dtype=torch.bfloat16)},
    reference=lambda rank, x: sum(x),
    cost=lambda tokens, width: Cost(nvlink_bytes=2 * tokens * width, launches=1, items=tokens, unit="tokens"),
    sizes={"bench": {"tokens": 16, "width": 4096}, "test": {"tokens": 5, "width": 104}},  # rows of 16 bytes
    tolerance=0.01,  # a ring rounds its sums to bfloat16 at every turn: on two ranks once, on eight seven times
    gpus=2,
)


def prepare(x: Tensor) -> Step:
    out = torch.empty_like(x)

    def step() -> Tensor:
        out.copy_(x)
        dist.all_reduce(out)
        return out

    return step
