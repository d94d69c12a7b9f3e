"""Batch norm is folded into the weights, and each convolution adds its bias and residual and takes the maximum itself."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_resnet_inference import Layer
from ch20.baseline_resnet_inference import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)
Folded = tuple[Tensor, Tensor]  # weight, channels last, and bias


def folded(layer: Layer) -> Folded:
    gain = layer["gain"].double() * (layer["variance"].double() + 1e-5).rsqrt()
    weight = (layer["weight"].double() * gain[:, None, None, None]).to(layer["weight"].dtype)
    bias = layer["shift"].double() - layer["mean"].double() * gain
    return weight.contiguous(memory_format=torch.channels_last), bias.to(weight.dtype)


def convolved(x: Tensor, layer: Folded, stride: int = 1, residual: Tensor | None = None) -> Tensor:
    """The convolution, its bias and residual added, and the maximum of that and zero, as one kernel of cuDNN."""
    weight, bias = layer
    padding = weight.shape[2] // 2
    where = [stride, stride], [padding, padding], [1, 1], 1
    if residual is None:
        return torch.cudnn_convolution_relu(x, weight, bias, *where)
    return torch.cudnn_convolution_add_relu(x, weight, residual, 1.0, bias, *where)


def prepare(images: Tensor, stem: Layer, blocks: list[list[Layer]], head: Tensor) -> Step:
    first, stages = folded(stem), [[folded(layer) for layer in block] for block in blocks]

    @torch.inference_mode()
    def step() -> Tensor:
        x = F.max_pool2d(convolved(images.contiguous(memory_format=torch.channels_last), first, 2), 3, 2, 1)
        for one, two, three, *shortcut in stages:
            stride = 2 if x.shape[1] == 2 * len(two[0]) else 1
            hidden = convolved(convolved(x, one), two, stride)
            residual = F.conv2d(x, *shortcut[0], stride) if shortcut else x
            x = convolved(hidden, three, residual=residual)
        return F.linear(x.mean((2, 3)), head)

    return step
