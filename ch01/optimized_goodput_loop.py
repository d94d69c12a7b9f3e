"""All eight steps are one CUDA graph whose copies run ahead on a second stream: the host launches once and is done."""

import torch
from torch import Tensor
from torch.nn import Parameter

from ch01.baseline_goodput_loop import RATE, page_lock, reconstruction_loss
from ch01.baseline_goodput_loop import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(images: Tensor, parameters: list[Tensor]) -> Step:
    page_lock(images)
    trained: list[Tensor] = [Parameter(parameter) for parameter in parameters]
    losses = parameters[0].new_empty(len(images))
    # Made one after the other, no two of these are the same. So the copies do not wait for the steps, and the workspace
    # that cuBLAS keeps for the stream of the capture is the graph's own.
    copies, warm_up, capturing = (torch.cuda.Stream() for _ in range(3))

    def train() -> None:
        batches = parameters[0].new_empty(images.shape)  # in here, so that the graph owns the memory it copies into
        compute = torch.cuda.current_stream()
        copies.wait_stream(compute)
        for index, batch in enumerate(batches):
            with torch.cuda.stream(copies):
                batch.copy_(images[index], non_blocking=True)
            compute.wait_stream(copies)  # for this batch only: the copies of later ones overlap the step
            loss = reconstruction_loss(batch, trained)
            gradients = torch.autograd.grad(loss, trained)
            with torch.no_grad():
                torch._foreach_add_(trained, gradients, alpha=-RATE)
            losses[index].copy_(loss.detach())

    untrained = [parameter.clone() for parameter in parameters]
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):  # libraries load their kernels at first use, which a capture forbids
        train()
    torch.cuda.current_stream().wait_stream(warm_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=capturing):
        train()
    torch._foreach_copy_(parameters, untrained)

    def step() -> tuple[Tensor, ...]:
        graph.replay()
        return (losses, *parameters)

    return step
