"""torch's layer_norm without weights: one kernel that walks along the row twice."""

import torch
from torch import Tensor

from ch07.baseline_smem_row_cache import EPSILON
from ch07.baseline_smem_row_cache import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[1:], eps=EPSILON)

    return step
