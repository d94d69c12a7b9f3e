"""Every difference of two points is formed in memory: for each number of the answer, one for each dimension."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, points, others, dims: {"x": draw.normal(points, dims), "y": draw.normal(others, dims)},
    reference=lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square(),
    # the fp32 units are the subject: tensor cores could multiply as exactly with each number split into three of TF32
    cost=lambda points, others, dims: Cost(
        flops=2 * points * others * dims,
        dtype="fp32",
        read=4 * dims * (points + others),
        write=4 * points * others,
    ),
    sizes={
        "bench": {"points": 4096, "others": 4096, "dims": 128},
        "cpu": {"points": 256, "others": 256, "dims": 32},
        "test": {"points": 37, "others": 29, "dims": 11},
    },
    # |x|^2 + |y|^2 - 2 x.y rounds at the size of its terms, not of the difference. These points lie around the origin,
    # where the two are alike: fp32 is off by 1e-7 (a TF32 product by 3e-5). Around a far point it would be off by more.
    tolerance=1e-6,
)


def prepare(x: Tensor, y: Tensor) -> Step:
    def step() -> Tensor:
        return (x[:, None] - y[None]).pow(2).sum(-1)

    return step
