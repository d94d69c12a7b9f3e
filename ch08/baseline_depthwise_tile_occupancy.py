"""The tile is as large as shared memory allows, so a multiprocessor has one block, which copies, waits and computes."""

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)

TAPS = 7


def inputs(draw: Draw, images: int, channels: int, rows: int, columns: int) -> Inputs:
    x = draw.normal(images, channels, rows, columns)
    return {"x": x, "filters": draw.normal(channels, 1, TAPS, TAPS, std=1 / TAPS)}


def reference(x: Tensor, filters: Tensor) -> Tensor:
    return torch.cat([conv2d(image, filters, padding=TAPS // 2, groups=len(filters)) for image in x.split(1)])


def cost(images: int, channels: int, rows: int, columns: int) -> Cost:
    numbers = images * channels * rows * columns
    read = 4 * (numbers + channels * TAPS * TAPS)
    return Cost(read=read, write=4 * numbers, flops=2 * TAPS * TAPS * numbers)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # As in ConvNeXt's blocks, but larger planes; 268 MB in and as much out, and 98 FLOPs for 8 bytes.
        "bench": {"images": 8, "channels": 128, "rows": 256, "columns": 256},
        "test": {"images": 2, "channels": 3, "rows": 131, "columns": 268},
    },
    tolerance=2e-6,
)


def convolving(launcher: str, x: Tensor, filters: Tensor) -> Step:
    convolve, out = load_cuda(__file__, launcher), torch.empty_like(x)

    def step() -> Tensor:
        convolve(x, filters, out, *x.shape)
        return out

    return step


def prepare(x: Tensor, filters: Tensor) -> Step:
    return convolving("convolve", x, filters)
