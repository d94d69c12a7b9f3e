"""torch.compile in reduce-overhead mode: forward and backward are fused and replayed as CUDA graphs."""

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
    # Graphs read a Parameter where it lies; any other tensor they would copy first.
    trained: list[Tensor] = [Parameter(parameter) for parameter in parameters]
    device, losses = parameters[0].device, parameters[0].new_empty(len(images))
    compiled = torch.compile(reconstruction_loss, mode="reduce-overhead", dynamic=False, fullgraph=True)

    def step() -> tuple[Tensor, ...]:
        for index, batch in enumerate(images):
            torch.compiler.cudagraph_mark_step_begin()
            loss = compiled(batch.to(device, non_blocking=True), trained)
            gradients = torch.autograd.grad(loss, trained)
            with torch.no_grad():
                torch._foreach_add_(trained, gradients, alpha=-RATE)
            losses[index].copy_(loss.detach())  # before the next step overwrites the graph's output
        return (losses, *parameters)

    return step
