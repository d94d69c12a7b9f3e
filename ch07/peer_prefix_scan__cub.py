"""CUB's DeviceScan::InclusiveSum: NVIDIA's own single-pass scan, tuned for each architecture."""

import torch
from torch import Tensor

from ch07.baseline_prefix_scan import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80, headers=["cub/device/device_scan.cuh"])


def prepare(a: Tensor) -> Step:
    scan, out = load_cuda(__file__, "scan"), torch.empty_like(a)
    # CUB keeps a word for each of its tiles, of about 2,000 numbers, and refuses if this is too little
    scratch = a.new_empty(a.numel() // 64 + (1 << 16), dtype=torch.uint8)

    def step() -> Tensor:
        scan(a, scratch, scratch.numel(), out, a.numel())
        return out

    return step
