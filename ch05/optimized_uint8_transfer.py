"""The bytes cross as they are, and the GPU makes floats of them: a quarter of the traffic, and no pass on the host."""

import torch
from torch import Tensor

from ch05.baseline_uint8_transfer import factors
from ch05.baseline_uint8_transfer import workload as workload
from common.python.workload import Step


def prepare(decoded: Tensor, colours: Tensor) -> Step:
    scale, shift = factors(colours)
    arrived = torch.empty(decoded.shape, dtype=decoded.dtype, device=colours.device)
    planes = arrived.permute(0, 3, 1, 2)
    out = torch.empty(planes.shape, device=colours.device)

    def step() -> Tensor:
        arrived.copy_(decoded, non_blocking=True)
        return torch.mul(planes, scale, out=out).add_(shift)

    return step
