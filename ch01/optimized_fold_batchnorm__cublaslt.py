"""Batch norm is folded into weight and bias; the product adds the bias and clips while its sums are in registers."""

import torch
from torch import Tensor

from ch01.baseline_fold_batchnorm import fold
from ch01.baseline_fold_batchnorm import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor) -> Step:
    folded, bias = fold(weight, gamma, beta, mean, var)
    columns = folded.flatten(1).T
    pixels = x.permute(0, 2, 3, 1)  # contiguous: a 1 x 1 convolution is a product of pixels and weights

    def step() -> Tensor:
        out = torch._addmm_activation(bias, pixels.flatten(0, 2), columns)  # cuBLASLt's epilogue: bias, then ReLU
        return out.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)

    return step
