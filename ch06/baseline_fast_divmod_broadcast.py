"""Each element finds its channel by dividing its 64-bit index twice, which takes longer than the memory does."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, batch, channels, area: {
        "x": draw.normal(batch, channels, area),
        "scale": draw.normal(channels),
    },
    reference=lambda x, scale: x * scale[:, None],
    cost=lambda batch, channels, area: Cost(
        read=4 * (batch * channels * area + channels), write=4 * batch * channels * area, flops=batch * channels * area
    ),
    sizes={
        "bench": {"batch": 640, "channels": 2048, "area": 49},  # of 7 x 7, the last stage of a ResNet-50
        "test": {"batch": 13, "channels": 37, "area": 49},
    },
    tolerance=1e-6,  # one rounding to fp32 is off by 3e-8
)


def prepare(x: Tensor, scale: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "scale_channels"), torch.empty_like(x)

    def step() -> Tensor:
        multiply(x, scale, out, x.numel(), *x.shape[1:])
        return out

    return step
