"""CUB's DeviceHistogram::HistogramEven: the histogram of NVIDIA's own library of primitives, for 8-bit samples."""

import torch
from torch import Tensor

from ch08.baseline_histogram_privatized import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80, headers=["cub/device/device_histogram.cuh"])

SCRATCH = 1 << 24  # bytes; CUB keeps bins for each block of a full grid, and refuses if this is too little


def prepare(codes: Tensor) -> Step:
    histogram, bins = load_cuda(__file__, "histogram"), codes.new_empty(256, dtype=torch.int32)
    scratch = codes.new_empty(SCRATCH)

    def step() -> Tensor:
        histogram(codes, scratch, SCRATCH, bins, codes.numel())
        return bins

    return step
