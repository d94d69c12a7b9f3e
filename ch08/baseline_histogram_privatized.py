"""Each code is one atomic addition in global memory, so the whole GPU queues at 256 counters in the L2 cache."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Step, Workload

requires = needs(sm=80)


def quantised(draw: Draw, n: int) -> Tensor:
    """Codes of normal values, 32 to a standard deviation: few at the ends, 1 in 80 in each bin of the middle."""
    return draw.normal(n, std=32.0).add_(128.0).round_().clamp_(0.0, 255.0).to(torch.uint8)


workload = Workload(
    inputs=lambda draw, n: {"codes": quantised(draw, n)},
    reference=lambda codes: codes.bincount(minlength=256),
    cost=lambda n: Cost(read=n, write=256 * 4, items=n, unit="codes"),
    sizes={"bench": {"n": 1 << 28}, "test": {"n": 65543}},
    tolerance=0.0,  # counts are exact
)


def prepare(codes: Tensor) -> Step:
    histogram, bins = load_cuda(__file__, "histogram"), codes.new_empty(256, dtype=torch.int32)

    def step() -> Tensor:
        histogram(codes, bins, codes.numel())
        return bins

    return step
