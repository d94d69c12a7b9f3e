"""CUB's DeviceReduce::Sum: the sum of NVIDIA's own library of primitives, tuned for each architecture."""

import torch
from torch import Tensor

from ch06.baseline_block_reduction import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80, headers=["cub/device/device_reduce.cuh"])

SCRATCH = 1 << 20  # bytes; CUB keeps a sum for each block of a full grid, and refuses if this is too little


def prepare(a: Tensor) -> Step:
    sum_up, out = load_cuda(__file__, "sum"), a.new_empty(())
    scratch = torch.empty(SCRATCH, dtype=torch.uint8, device=a.device)

    def step() -> Tensor:
        sum_up(a, scratch, SCRATCH, out, a.numel())
        return out

    return step
