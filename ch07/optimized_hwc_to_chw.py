"""A thread reads eight whole pixels, sorts their bytes in registers, and writes 16 bytes to each of three planes."""

import torch
from torch import Tensor

from ch07.baseline_hwc_to_chw import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(images: Tensor, scale: Tensor, shift: Tensor) -> Step:
    count, height, width, _ = images.shape
    split, out = load_cuda(__file__, "split_planes"), scale.new_empty(count, 3, height, width, dtype=torch.bfloat16)

    def step() -> Tensor:
        split(images, scale, shift, out, count, height * width)
        return out

    return step
