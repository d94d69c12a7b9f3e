"""Autocast to bf16, channels side by side, and two CUDA graphs a step, with one sum of all gradients between them."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from ch04.baseline_resnet_50 import RATE, Net
from ch04.baseline_resnet_50 import workload as workload
from common.models.graphs import Replay
from common.python.workload import Step


def captured(work: Callable[[], None], on_gpu: bool) -> Callable[[], None]:
    """`work` as a CUDA graph, which the host launches in one call instead of a thousand; on a CPU as it is."""
    if not on_gpu:
        return work
    side, capturing, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # backward wants a side stream to warm up on
        for _ in range(3):  # libraries load their kernels in the first calls, which a capture would refuse
            work()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, stream=capturing):
        work()
    return Replay(graph, work)


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

    to_gradients, to_weights = captured(backward, images.is_cuda), captured(update, images.is_cuda)

    def step() -> tuple[Tensor, ...]:
        to_gradients()
        dist.all_reduce(flat)  # their length is of no account: the sum is as good as the mean
        to_weights()
        return tuple(updated)

    return step
