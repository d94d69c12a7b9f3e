"""torch's caching allocator, which keeps freed blocks by size and reuses them in stream order, too."""

import torch
from torch import Tensor

from ch06.baseline_pool_alloc import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(signals: Tensor) -> Step:
    smooth, out = load_cuda(__file__, "smooth_twice"), torch.empty_like(signals)
    pairs, n = list(zip(signals.unbind(), out.unbind())), signals.shape[1]

    def step() -> Tensor:
        for signal, result in pairs:
            smooth(signal, signal.new_empty(n), result, n)
        return out

    return step
