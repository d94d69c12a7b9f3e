"""Works on another stream and makes the caller's stream wait for it."""

import torch
from torch import Tensor

from ch01.baseline_side_stream import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(a: Tensor, b: Tensor) -> Step:
    out, side = torch.empty_like(a), torch.cuda.Stream()

    def step() -> Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.matmul(a, b, out=out)
        torch.cuda.current_stream().wait_stream(side)
        return out

    return step
