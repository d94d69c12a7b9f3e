"""The weights of the neurons that are not zero are copied together, a small matrix, once their number is known."""

import torch
from torch import Tensor

from ch17.baseline_relu_sparse_ffn import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, up: Tensor, down: Tensor) -> Step:
    out = torch.empty_like(x)

    def step() -> Tensor:
        hidden = torch.mv(up, x).relu_().square_()
        live = hidden.nonzero()[:, 0]  # the host waits
        return torch.mv(down[live].T, hidden[live], out=out)

    return step
