"""Blocks of one row: each of the nine rows that a result needs comes from L2 again, since no block shares it."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)

TAPS = [weight / 256 for weight in (1, 8, 28, 56, 70, 56, 28, 8, 1)]  # the binomial coefficients of 8


def blurred(image: Tensor) -> Tensor:
    """Each element with its four neighbours above and below, weighted; rows beyond the image are zero."""
    rows, reach = image.shape[0], len(TAPS) // 2
    padded = pad(image, (0, 0, reach, reach))
    total = torch.zeros_like(image)
    for k, weight in enumerate(TAPS):
        total = total + weight * padded[k : k + rows]
    return total


workload = Workload(
    inputs=lambda draw, rows, columns: {"image": draw.normal(rows, columns)},
    reference=blurred,
    # Eight sums of two neighbours each and a scale would do, since the weights are binomial.
    cost=lambda rows, columns: Cost(read=4 * rows * columns, write=4 * rows * columns, flops=9 * rows * columns),
    sizes={"bench": {"rows": 8192, "columns": 16384}, "test": {"rows": 45, "columns": 1003}},
    tolerance=1e-6,  # nine roundings to fp32 are off by 1e-7
)


def prepare(image: Tensor) -> Step:
    blur, out = load_cuda(__file__, "blur_rows"), torch.empty_like(image)

    def step() -> Tensor:
        blur(image, out, *image.shape)
        return out

    return step
