"""Hooks of accelerate copy each expert in from host memory before it runs, and drop it afterwards: none is kept."""

import torch
from torch import Tensor

from ch17.baseline_expert_offload_cache import Expert, decoded, parts
from ch17.baseline_expert_offload_cache import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["accelerate"])


class Held(torch.nn.Module):
    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(weights, requires_grad=False)

    def forward(self) -> Expert:
        return parts(self.weights)  # views of what the hook has copied, which live as long as they are used


def prepare(x: Tensor, ids: Tensor, shares: Tensor, experts: Tensor, slots: int) -> Step:
    from accelerate import cpu_offload

    network = [[Held(weights) for weights in layer.unbind()] for layer in experts]
    for layer, held in zip(experts, network):
        for weights, module in zip(layer, held):
            cpu_offload(module, execution_device=x.device, state_dict={"weights": weights})
    return lambda: decoded(x, ids, shares, lambda layer, number: network[layer][number]())
