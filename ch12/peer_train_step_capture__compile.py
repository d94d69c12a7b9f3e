"""torch.compile, mode reduce-overhead: forward and backward fused and replayed as CUDA graphs, then the fused AdamW."""

import torch
from torch import Tensor

from ch12.baseline_train_step_capture import loss_of, update
from ch12.baseline_train_step_capture import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)
compiled = torch.compile(loss_of, mode="reduce-overhead", fullgraph=True, dynamic=False)


def prepare(
    tokens: Tensor, parameters: list[Tensor], means: list[Tensor], squares: list[Tensor], updates: Tensor
) -> Step:
    leaves = [parameter.detach().requires_grad_() for parameter in parameters]
    for tensor in (tokens, *leaves):  # else every call copies them into the graph's own buffers
        torch._dynamo.mark_static_address(tensor, guard=False)

    def step() -> tuple[Tensor, ...]:
        torch.compiler.cudagraph_mark_step_begin()
        loss = compiled(tokens, leaves)
        update(parameters, list(torch.autograd.grad(loss, leaves)), means, squares, list(updates.unbind()))
        return loss.detach().clone(), *parameters, *means, *squares, updates  # the next replay overwrites the loss

    return step
