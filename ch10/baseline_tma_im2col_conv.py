"""Every thread works out addresses of patches and copies pieces of 16 bytes into tiles of a convolution's product."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(targets=["sm_90a"])


def inputs(draw: Draw, images: int, side: int, channels: int, results: int) -> Inputs:
    return {
        "x": draw.normal(images, side, side, channels, dtype=torch.bfloat16),  # channels last
        "filters": draw.normal(results, 3, 3, channels, std=(9 * channels) ** -0.5, dtype=torch.bfloat16),
    }


def reference(x: Tensor, filters: Tensor) -> Tensor:
    side, padded = x.shape[1], pad(x, (0, 0, 1, 1, 1, 1))
    total = x.new_zeros(*x.shape[:3], len(filters))
    for row in range(3):
        for column in range(3):
            total += padded[:, row : row + side, column : column + side] @ filters[:, row, column].T
    return total


def cost(images: int, side: int, channels: int, results: int) -> Cost:
    # Outermost rows and columns meet two of a filter's three. Winograd multiplies less, but in bf16 its transformed
    # tiles are rounded before the product: more than the tolerance allows.
    pairs = images * (3 * side - 2) ** 2
    moved = {"read": 2 * channels * (images * side * side + 9 * results), "write": 2 * images * side * side * results}
    return Cost(flops=2 * pairs * channels * results, dtype="bf16", **moved, items=images, unit="images")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # That of ch09:conv2d_implicit_gemm.
        "bench": {"images": 64, "side": 64, "channels": 256, "results": 256},
        # Channels are a multiple of 8, since TMA copies from multiples of 16 bytes; images have 128 KiB or more.
        "test": {"images": 3, "side": 19, "channels": 72, "results": 40},
    },
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


def prepare(x: Tensor, filters: Tensor) -> Step:
    convolve, out = load_cuda(__file__, "conv3x3"), x.new_empty(*x.shape[:3], len(filters))

    def step() -> Tensor:
        images, side, _, channels = x.shape
        convolve(x, filters, out, images, side, channels, len(filters))
        return out

    return step
