"""torch.compile: it fuses product and sum into one Triton kernel and tunes how many numbers a program takes."""

import torch
from torch import Tensor

from ch01.baseline_roofline_triad import SCALE
from ch01.baseline_roofline_triad import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def triad(b: Tensor, c: Tensor) -> Tensor:
    return b + SCALE * c


def prepare(b: Tensor, c: Tensor) -> Step:
    compiled = torch.compile(triad, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(b, c)

    return step
