"""Autocast to bf16, channels side by side, and two CUDA graphs a step, with one sum of all gradients between them."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch04.baseline_resnet_50 import RATE, Net
from ch04.baseline_resnet_50 import workload as workload
from common.models.graphs import captured_training
from common.python.workload import Step


def prepare(images: Tensor, labels: Tensor, weights: list[Tensor], depths: list[int]) -> Step:
    net = Net(weights, depths).to(memory_format=torch.channels_last)
    held = list(net.weights)
    flat = torch.empty(sum(weight.numel() for weight in held), device=images.device)
    pieces = flat.split([weight.numel() for weight in held])
    gradients = [piece.as_strided(weight.shape, weight.stride()) for piece, weight in zip(pieces, held)]
    updated: list[Tensor] = []

    def backward() -> None:
        with torch.autocast(images.device.type, torch.bfloat16):
            loss = net(images.contiguous(memory_format=torch.channels_last), labels)
        torch._foreach_copy_(gradients, torch.autograd.grad(loss, held))

    @torch.no_grad()
    def update() -> None:
        rates = torch._foreach_div(torch._foreach_norm(held), torch._foreach_norm(gradients))
        updated[:] = torch._foreach_sub(held, torch._foreach_mul(gradients, torch._foreach_mul(rates, RATE)))

    to_gradients, to_weights = (captured_training(work, images.device, warm_up=work) for work in (backward, update))

    def step() -> tuple[Tensor, ...]:
        to_gradients()
        dist.all_reduce(flat)  # their length is of no account: the sum is as good as the mean
        to_weights()
        return tuple(updated)

    return step
