"""Half a matrix comes in while the one before is multiplied: after the last copy one small product is left."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ch20.baseline_layer_streaming import workload as workload
from common.models.caches import causal_attention
from common.models.decoder import EPSILON, Shape, Weights, block, turns
from common.python.workload import Step


def prepare(x: Tensor, layers: list[Weights], shape: Shape) -> Step:
    gpu = torch.get_device_module(x.device)
    positions = torch.arange(x.shape[1], device=x.device)[None]
    room = [{name: torch.empty_like(matrix, device=x.device) for name, matrix in layers[0].items()} for _ in range(2)]
    # A matrix is two halves of its rows, and a norm one piece; each has an event that tells that it is there.
    parts = [{name: [(x, gpu.Event()) for x in own.chunk(own.dim())] for name, own in each.items()} for each in room]
    norms = [{name: own for name, own in each.items() if own.dim() == 1} for each in room]
    read, copies = [gpu.Event() for _ in room], gpu.Stream()

    def linear(x: Tensor, halves: Any) -> Tensor:
        made = x.new_empty(*x.shape[:-1], sum(len(half) for half, _ in halves))
        into = made.flatten(0, -2).split([len(half) for half, _ in halves], 1)
        for (half, filled), part in zip(halves, into):
            gpu.current_stream().wait_event(filled)
            torch.mm(x.flatten(0, -2), half.T, out=part)
        return made

    @torch.inference_mode()
    def step() -> Tensor:
        compute = gpu.current_stream()
        copies.wait_stream(compute)  # nothing begins before the step does
        hidden = x
        for index, layer in enumerate(layers):
            turn = index % 2
            with gpu.stream(copies):
                copies.wait_event(read[turn])  # the layer before the last was here
                for name in sorted(layer, key=lambda name: layer[name].dim()):  # both norms first
                    for (half, filled), source in zip(parts[turn][name], layer[name].chunk(layer[name].dim())):
                        half.copy_(source, non_blocking=True)
                        filled.record(copies)
            if index == 0:  # the first copies are on their way before anything else is launched
                cos, sin = turns(shape, positions, x.dtype)
            compute.wait_event(parts[turn]["mlp_norm"][-1][1])  # the later of the norms
            hidden = block(parts[turn] | norms[turn], shape, hidden, cos, sin, causal_attention, linear)
            read[turn].record(compute)
        return rms_norm(hidden, (shape.width,), eps=EPSILON)

    return step
