"""torch's fused AdamW gets the flag in device memory and leaves its tensors alone if it is set; captured as a graph."""

import torch
from torch import Tensor

from ch12.baseline_amp_skip_if_node import BETA1, BETA2, DECAY, EPSILON, RATE
from ch12.baseline_amp_skip_if_node import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(
    gradients: Tensor, parameters: Tensor, means: Tensor, squares: Tensor, scale: Tensor, updates: Tensor
) -> Step:
    state = parameters, means, squares, scale, updates
    before = [tensor.clone() for tensor in state]
    hyper = {"lr": RATE, "beta1": BETA1, "beta2": BETA2, "eps": EPSILON, "weight_decay": DECAY}
    found, gradient = torch.zeros_like(scale), torch.empty_like(parameters)

    def train() -> None:
        for scaled in gradients:
            found.zero_()
            gradient.copy_(scaled)
            torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, scale.reciprocal())
            updates.add_(1 - found)
            moments, switches = ([means], [squares], []), {"amsgrad": False, "maximize": False, "found_inf": found}
            torch._fused_adamw_([parameters], [gradient], *moments, [updates[0]], **hyper, **switches)
            scale.mul_(1 - found / 2).clamp_(min=1)

    graph = torch.cuda.CUDAGraph()
    train()
    with torch.cuda.graph(graph):
        train()
    for tensor, value in zip(state, before):  # the warm-up trained
        tensor.copy_(value)

    def step() -> tuple[Tensor, ...]:
        graph.replay()
        return state

    return step
