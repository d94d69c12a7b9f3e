"""torchvision's transforms convert and normalise on the GPU, where the bytes have been copied as they are."""

import torch
from torch import Tensor

from ch05.baseline_uint8_transfer import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["torchvision"])


def prepare(decoded: Tensor, colours: Tensor) -> Step:
    from torchvision.transforms import v2

    mean, deviation = colours.tolist()
    floats = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, deviation, inplace=True)])

    def step() -> Tensor:
        arrived = decoded.to(colours.device, non_blocking=True)
        return floats(arrived.permute(0, 3, 1, 2).contiguous())  # planes while they are bytes

    return step
