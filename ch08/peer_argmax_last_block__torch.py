"""torch.argmax into a tensor that is kept: its reduction spreads long rows over several blocks, too."""

import torch
from torch import Tensor

from ch08.baseline_argmax_last_block import workload as workload
from common.python.workload import Step


def prepare(logits: Tensor) -> Step:
    ids = logits.new_empty(len(logits), dtype=torch.int64)

    def step() -> Tensor:
        return torch.argmax(logits, dim=1, out=ids)

    return step
