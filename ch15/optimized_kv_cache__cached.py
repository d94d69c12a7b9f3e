"""Keys and values of earlier tokens are kept: after the prompt, each step passes one token through the model."""

import torch
from torch import Tensor

from ch15.baseline_kv_cache import workload as workload
from common.models.caches import continuing, new_cache, prefilling
from common.models.decoder import Shape, Weights, forward, greedy
from common.models.timeline import Deliver, metered
from common.python.workload import Metered


def prepare(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> Metered:
    start, end = prompt.shape[1], prompt.shape[1] + new
    tokens = prompt.new_empty(len(prompt), new)
    positions = torch.arange(end, device=prompt.device).expand(len(prompt), -1)
    states = weights["head"].new_empty(len(prompt), new, shape.width)
    cache = new_cache(shape, len(prompt), end, states)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        hidden = forward(weights, shape, prompt, positions[:, :start], prefilling(cache))
        for index, length in enumerate(range(start, end)):
            states[:, index] = hidden[:, -1]
            tokens[:, index] = greedy(weights, states[:, index])
            deliver(range(len(prompt)))
            if length + 1 < end:
                here = positions[:, length : length + 1]
                attend = continuing(cache, here, extent=length + 1)
                hidden = forward(weights, shape, tokens[:, index, None], here, attend)
        return tokens, states

    return metered(serve, prompt.device)
