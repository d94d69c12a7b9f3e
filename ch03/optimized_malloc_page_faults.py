"""One buffer, allocated once, filled image by image: no page faults, and each image stays in cache meanwhile."""

import torch
from torch import Tensor

from ch03.baseline_malloc_page_faults import workload as workload
from common.python.workload import Step


def prepare(pixels: Tensor, mean: Tensor, std: Tensor) -> Step:
    torch.set_num_threads(1)  # as in a DataLoader worker
    normal = torch.empty_like(pixels, dtype=torch.float32)
    images = list(zip(pixels, normal))  # 0.6 MB each in fp32: they fit in the L2 cache of a core

    def step() -> Tensor:
        for image, result in images:
            result.copy_(image).div_(255).sub_(mean).div_(std)
        return normal

    return step
