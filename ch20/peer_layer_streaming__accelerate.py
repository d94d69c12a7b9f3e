"""Hooks of accelerate copy each layer's weights in from host memory before it runs, and drop them when it has run."""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ch20.baseline_layer_streaming import workload as workload
from common.models.caches import causal_attention
from common.models.decoder import EPSILON, Shape, Weights, block, turns
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["accelerate"])


class Layer(torch.nn.Module):
    def __init__(self, weights: Weights, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        for name, matrix in weights.items():
            self.register_parameter(name, torch.nn.Parameter(matrix, requires_grad=False))

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return block(dict(self.named_parameters()), self.shape, hidden, cos, sin, causal_attention)


def prepare(x: Tensor, layers: list[Weights], shape: Shape) -> Step:
    from accelerate import cpu_offload

    positions = torch.arange(x.shape[1], device=x.device)[None]
    network = torch.nn.ModuleList(Layer(weights, shape) for weights in layers)
    for layer, weights in zip(network, layers):
        cpu_offload(layer, execution_device=x.device, state_dict=dict(weights))

    @torch.inference_mode()
    def step() -> Tensor:
        hidden, (cos, sin) = x, turns(shape, positions, x.dtype)
        for layer in network:
            hidden = layer(hidden, cos, sin)
        return rms_norm(hidden, (shape.width,), eps=EPSILON)

    return step
