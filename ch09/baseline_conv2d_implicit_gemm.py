"""Each pixel's patch of 3 x 3 x channels is copied to a row of a matrix nine times the image, which a product reads."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, images: int, side: int, channels: int, results: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "x": draw.normal(images, side, side, channels, dtype=element),  # channels last
        "filters": draw.normal(results, 3, 3, channels, std=(9 * channels) ** -0.5, dtype=element),
    }


def reference(x: Tensor, filters: Tensor) -> Tensor:
    side, padded = x.shape[1], pad(x, (0, 0, 1, 1, 1, 1))
    total = x.new_zeros(*x.shape[:3], len(filters))
    for row in range(3):
        for column in range(3):
            total += padded[:, row : row + side, column : column + side] @ filters[:, row, column].T
    return total


def cost(images: int, side: int, channels: int, results: int, dtype: str) -> Cost:
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
        # A block of an image decoder: input and result are 134 MB each, the matrix of patches 1.2 GB.
        "bench": {"images": 64, "side": 64, "channels": 256, "results": 256, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"images": 2, "side": 19, "channels": 72, "results": 40, "dtype": "float16"},
    },
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


def prepare(x: Tensor, filters: Tensor) -> Step:
    results, patch = len(filters), filters[0].numel()
    out = x.new_empty(*x.shape[:3], results)

    def step() -> Tensor:
        windows = pad(x, (0, 0, 1, 1, 1, 1)).unfold(1, 3, 1).unfold(2, 3, 1)  # a view
        patches = windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, patch)  # a copy, channels innermost
        torch.mm(patches, filters.view(results, patch).T, out=out.view(-1, results))
        return out

    return step
