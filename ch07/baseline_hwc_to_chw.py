"""One thread a number of the planes: it reads one byte in three, and the image is walked through once a plane."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, count: int, height: int, width: int) -> Inputs:
    return {
        "images": draw.integers(count, height, width, 3, high=256, dtype=torch.uint8),
        "scale": draw.uniform(3, low=0.016, high=0.018),  # 1 / (255 x deviation), and -mean / deviation, of ImageNet
        "shift": draw.uniform(3, low=-2.2, high=-1.8),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda images, scale, shift: (images * scale + shift).permute(0, 3, 1, 2),
    cost=lambda count, height, width: Cost(read=3 * count * height * width, write=6 * count * height * width),
    # frames of a video; at test size an odd number of pixels
    sizes={"bench": {"count": 48, "height": 1080, "width": 1920}, "test": {"count": 2, "height": 37, "width": 53}},
    tolerance=4e-3,  # rounding to bf16 is off by 1.7e-3
)


def prepare(images: Tensor, scale: Tensor, shift: Tensor) -> Step:
    count, height, width, _ = images.shape
    split, out = load_cuda(__file__, "split_planes"), scale.new_empty(count, 3, height, width, dtype=torch.bfloat16)

    def step() -> Tensor:
        split(images, scale, shift, out, count, height * width)
        return out

    return step
