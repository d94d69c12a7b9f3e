"""Every large temporary is a new mapping: a page fault and a page to zero per 4 KiB, for every batch anew."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, images, side: {
        "pixels": draw.host.integers(images, 3, side * side, high=256, dtype=torch.uint8),
        "mean": draw.host.uniform(3, 1, low=0.4, high=0.5),
        "std": draw.host.uniform(3, 1, low=0.2, high=0.3),
    },
    reference=lambda pixels, mean, std: pixels.double().div_(255).sub_(mean).div_(std),
    # At the rate of all cores: several threads could normalise the images, though these variants use one.
    cost=lambda images, side: Cost(host_bytes=3 * images * side**2 * (1 + 4), items=images, unit="images"),
    # glibc raises its mapping threshold by itself, but never over 32 MiB: 64 images in fp32 are 37 MiB
    sizes={
        "bench": {"images": 64, "side": 224},
        "cpu": {"images": 64, "side": 224},
        "test": {"images": 3, "side": 33},
    },
    tolerance=1e-6,
    clock="end_to_end",
    isolated=True,  # mallopt is for the whole process
)


def prepare(pixels: Tensor, mean: Tensor, std: Tensor) -> Step:
    torch.set_num_threads(1)  # as in a DataLoader worker

    def step() -> Tensor:
        return (pixels.float() / 255 - mean) / std

    return step
