"""Two sets of buffers take turns: a copy stream brings the next layer's weights in while this layer runs."""

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
    filled, read = ([gpu.Event() for _ in room] for _ in range(2))  # of each set, the latest time
    copies = gpu.Stream()

    @torch.inference_mode()
    def step() -> Tensor:
        compute = gpu.current_stream()
        copies.wait_stream(compute)  # nothing begins before the step does
        hidden, (cos, sin) = x, turns(shape, positions, x.dtype)
        for index, layer in enumerate(layers):
            turn = index % 2
            with gpu.stream(copies):
                copies.wait_event(read[turn])  # the layer before the last lay here
                for name, matrix in layer.items():
                    room[turn][name].copy_(matrix, non_blocking=True)
                filled[turn].record(copies)
            compute.wait_event(filled[turn])
            hidden = block(room[turn], shape, hidden, cos, sin, causal_attention)
            read[turn].record(compute)
        return rms_norm(hidden, (shape.width,), eps=EPSILON)

    return step
