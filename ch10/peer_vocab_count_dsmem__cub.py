"""CUB's DeviceHistogram::HistogramEven: with so many bins each block has a table of its own in global memory."""

import torch
from torch import Tensor

from ch10.baseline_vocab_count_dsmem import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80, headers=["cub/device/device_histogram.cuh"])


def prepare(ids: Tensor, vocabulary: int) -> Step:
    count, counts = load_cuda(__file__, "count_ids"), ids.new_empty(vocabulary)
    needed = torch.empty(1, dtype=torch.int64, pin_memory=True)
    load_cuda(__file__, "scratch_bytes")(ids, counts, needed, ids.numel(), counts.numel())
    scratch = ids.new_empty(int(needed), dtype=torch.uint8)

    def step() -> Tensor:
        count(ids, scratch, scratch.numel(), counts, ids.numel(), counts.numel())
        return counts

    return step
