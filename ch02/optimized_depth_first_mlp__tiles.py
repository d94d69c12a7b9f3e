"""Library kernels on tiles that stay in L2: 688 short launches cost an H200 more than the memory traffic they save."""

import torch
from torch import Tensor

from ch02.baseline_depth_first_mlp import forward
from ch02.baseline_depth_first_mlp import workload as workload
from common.python.workload import Step

TILE = 24576  # rows: 12 MiB of 256 in bf16, and two such tiles are at work


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    out, scratch = torch.empty_like(x), torch.empty_like(x[:TILE])
    tiles = list(zip(x.split(TILE), out.split(TILE)))

    def step() -> Tensor:
        for rows, result in tiles:
            forward(rows, weights, scratch[: len(rows)], result)
        return out

    return step
