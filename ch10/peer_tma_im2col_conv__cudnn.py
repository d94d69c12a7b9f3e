"""cuDNN's convolution through torch, on the same tensors with channels last."""

from torch import Tensor
from torch.nn.functional import conv2d

from ch10.baseline_tma_im2col_conv import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, filters: Tensor) -> Step:
    planes, weight = x.permute(0, 3, 1, 2), filters.permute(0, 3, 1, 2)  # views: channels last in memory

    def step() -> Tensor:
        return conv2d(planes, weight, padding=1).permute(0, 2, 3, 1)

    return step
