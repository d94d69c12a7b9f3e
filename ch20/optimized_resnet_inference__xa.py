"""Batch norms are folded into weights, and cuDNN's convolutions add bias and residual and take ReLU."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_resnet_inference import Layer
from ch20.baseline_resnet_inference import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)  # cuDNN


def folded(layer: Layer) -> tuple[Tensor, Tensor]:
    dtype, gain = layer["weight"].dtype, layer["gain"].double() * (layer["variance"].double() + 1e-5).rsqrt()
    weight, bias = layer["weight"] * gain[:, None, None, None], layer["shift"].double() - layer["mean"].double() * gain
    return weight.to(dtype).contiguous(memory_format=torch.channels_last), bias.to(dtype)


def prepare(images: Tensor, stem: Layer, blocks: list[list[Layer]], head: Tensor) -> Step:
    (first, bias), stages = folded(stem), [[folded(layer) for layer in block] for block in blocks]
    shift = bias[:, None, None]

    def place(weight: Tensor, stride: int) -> tuple[list[int], list[int], list[int], int]:
        return [stride] * 2, [weight.shape[2] // 2] * 2, [1, 1], 1

    @torch.inference_mode()
    def step() -> Tensor:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
            together = images.contiguous(memory_format=torch.channels_last)
            x = F.max_pool2d(F.conv2d(together, first, stride=2, padding=3), 3, 2, 1)
            x = (x + shift).relu_()  # neither bias nor ReLU changes which of nine is the largest
            for one, two, three, *shortcut in stages:
                stride = 2 if x.shape[1] == 2 * len(two[0]) else 1
                hidden = torch.cudnn_convolution_relu(x, *one, *place(one[0], 1))
                hidden = torch.cudnn_convolution_relu(hidden, *two, *place(two[0], stride))
                kept = F.conv2d(x, *shortcut[0], stride=stride) if shortcut else x
                x = torch.cudnn_convolution_add_relu(hidden, three[0], kept, 1.0, three[1], *place(three[0], 1))
        return F.linear(x.mean((2, 3)), head)

    return step
