"""Folded, and still three kernels: PyTorch adds the bias of a cuDNN convolution with a kernel of its own."""

from torch import Tensor
from torch.nn.functional import conv2d

from ch01.baseline_fold_batchnorm import fold
from ch01.baseline_fold_batchnorm import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Step:
    folded, bias = fold(weight, gamma, beta, mean, var)

    def step() -> Tensor:
        return conv2d(x, folded, bias).relu_()

    return step
