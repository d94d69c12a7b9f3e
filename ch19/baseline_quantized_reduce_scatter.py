"""Gradients are summed over the ranks by NCCL in bf16: the link is busy for two bytes of every number that crosses."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, numbers: {"x": draw.normal(draw.ranks, numbers, dtype=torch.bfloat16)},  # a part for each rank
    reference=lambda rank, x: sum(of_rank[rank] for of_rank in x),
    # For two ranks. Six bits are what normal noise needs for an error of 1% in the sum of two, however it is coded.
    cost=lambda numbers: Cost(
        nvlink_bytes=6 * numbers // 8, read=4 * numbers, write=2 * numbers, items=numbers, unit="gradients"
    ),
    sizes={"bench": {"numbers": 1 << 28}, "test": {"numbers": 9001}},
    tolerance=0.01,
    gpus=2,
    clock="end_to_end",
)


def prepare(x: Tensor) -> Step:
    out = torch.empty_like(x[0])

    def step() -> Tensor:
        dist.reduce_scatter_tensor(out, x.view(-1))
        return out

    return step
