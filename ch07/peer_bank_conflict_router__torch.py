"""torch.softmax, whose kernel for short rows keeps two of them in a warp's registers and uses no shared memory."""

import torch
from torch import Tensor

from ch07.baseline_bank_conflict_router import workload as workload
from common.python.workload import Step


def prepare(logits: Tensor) -> Step:
    out = torch.empty_like(logits)

    def step() -> Tensor:
        return torch.softmax(logits, dim=1, out=out)

    return step
