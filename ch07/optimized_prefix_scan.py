"""Blocks keep a ring of tiles on chip, so that tiles wait for the sums before them while others are on their way."""

import torch
from torch import Tensor

from ch07.baseline_prefix_scan import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_80", "sm_90a", "sm_100a", "sm_103a"])
TILE = 4096  # numbers of a block, as in the .cu file


def prepare(a: Tensor) -> Step:
    scan, out = load_cuda(__file__, "scan"), torch.empty_like(a)
    states = a.new_empty(-(-a.numel() // TILE), dtype=torch.int32)  # a word for each tile

    def step() -> Tensor:
        scan(a, states, states.numel(), out, a.numel())
        return out

    return step
