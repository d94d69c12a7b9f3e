"""96 KB of shared memory hold a block's row, more than a kernel gets unasked: memory is read once, not three times."""

import torch
from torch import Tensor

from ch07.baseline_smem_row_cache import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(x: Tensor) -> Step:
    standardise, out = load_cuda(__file__, "standardise_rows"), torch.empty_like(x)

    def step() -> Tensor:
        standardise(x, out, *x.shape)
        return out

    return step
