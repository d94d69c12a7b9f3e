"""The first kernel only sums its tile and writes nothing back: every number is read twice and written once."""

import torch
from torch import Tensor

from ch07.baseline_prefix_scan import TILE
from ch07.baseline_prefix_scan import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(a: Tensor) -> Step:
    scan, out = load_cuda(__file__, "scan"), torch.empty_like(a)
    totals = a.new_empty(-(-a.numel() // TILE))

    def step() -> Tensor:
        scan(a, totals, totals.numel(), out, a.numel())
        return out

    return step
