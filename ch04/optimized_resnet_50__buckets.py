"""Autocast to bf16, channels side by side, and buckets of gradients that travel during the backward pass."""

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ch04.baseline_resnet_50 import Net, training
from ch04.baseline_resnet_50 import workload as workload
from common.python.workload import Step


def prepare(images: Tensor, labels: Tensor, weights: list[Tensor], depths: list[int]) -> Step:
    net = Net(weights, depths).to(memory_format=torch.channels_last)
    parallel = DistributedDataParallel(net, gradient_as_bucket_view=True)

    def loss() -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            return parallel(images.contiguous(memory_format=torch.channels_last), labels)

    return training(net, loss, averaged=True)  # by the hooks of `parallel`
