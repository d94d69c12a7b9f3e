"""TMA copies boxes of the image shifted by the tap, with zeros outside, and two blocks share each box of filters."""

import torch
from torch import Tensor

from ch09.baseline_conv2d_implicit_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])


def prepare(x: Tensor, filters: Tensor) -> Step:
    convolve = load_cuda(__file__, f"conv3x3_{'bf16' if x.dtype == torch.bfloat16 else 'fp16'}")
    (images, side, _, channels), results = x.shape, len(filters)
    out = x.new_empty(images, side, side, results)

    def step() -> Tensor:
        convolve(x, filters, out, images, side, channels, results)
        return out

    return step
