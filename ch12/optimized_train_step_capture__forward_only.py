"""Only the forward is captured: its launches are one, those of backward and optimizer are still issued singly."""

import torch
from torch import Tensor

from ch12.baseline_train_step_capture import loss_of, update
from ch12.baseline_train_step_capture import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(
    tokens: Tensor, parameters: list[Tensor], means: list[Tensor], squares: list[Tensor], updates: Tensor
) -> Step:
    # .data, because autograd must not count later writes to these tensors as damage to what the capture saved for it:
    # each replay saves it anew, in the same memory.
    leaves, tokens = [parameter.data.requires_grad_() for parameter in parameters], tokens.data
    graph = torch.cuda.CUDAGraph()
    for _ in range(3):  # libraries load their kernels in the first calls, which a capture would refuse
        loss_of(tokens, leaves)
    with torch.cuda.graph(graph):
        loss = loss_of(tokens, leaves)

    def step() -> tuple[Tensor, ...]:
        graph.replay()
        gradients = torch.autograd.grad(loss, leaves, retain_graph=True)
        update(parameters, list(gradients), means, squares, list(updates.unbind()))
        return loss.detach(), *parameters, *means, *squares, updates

    return step
