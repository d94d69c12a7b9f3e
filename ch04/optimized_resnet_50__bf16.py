"""Channels side by side, and products in bf16: activations are half as wide, and so is each walk through memory."""

import torch
from torch import Tensor

from ch04.baseline_resnet_50 import Net, training
from ch04.baseline_resnet_50 import workload as workload
from common.python.workload import Step


def prepare(images: Tensor, labels: Tensor, weights: list[Tensor], depths: list[int]) -> Step:
    net = Net(weights, depths).to(memory_format=torch.channels_last)

    def loss() -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            return net(images.contiguous(memory_format=torch.channels_last), labels)

    return training(net, loss)
