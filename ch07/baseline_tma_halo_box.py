"""Threads load a tile with its border into shared memory, and each of them asks for each number whether it exists."""

from torch import Tensor, empty_like
from torch.nn import functional as F

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, batch: int, channels: int, height: int, width: int) -> Inputs:
    return {"x": draw.normal(batch, channels, height, width), "weight": draw.normal(channels, 5, 5)}


def cost(batch: int, channels: int, height: int, width: int) -> Cost:
    bytes_ = 4 * batch * channels * height * width
    return Cost(read=bytes_, write=bytes_)


requires = needs(sm=80)
workload = Workload(
    inputs=inputs,
    reference=lambda x, weight: F.conv2d(x, weight[:, None], padding=2, groups=len(weight)),  # depthwise
    cost=cost,
    sizes={
        "bench": {"batch": 2, "channels": 64, "height": 1024, "width": 1024},
        "test": {"batch": 2, "channels": 3, "height": 43, "width": 140},  # TMA wants rows of whole 16 bytes
    },
    tolerance=2e-6,  # 25 products in fp32
)


def prepare(x: Tensor, weight: Tensor) -> Step:
    depthwise, out = load_cuda(__file__, "depthwise"), empty_like(x)

    def step() -> Tensor:
        depthwise(x, weight, out, *x.shape)
        return out

    return step
