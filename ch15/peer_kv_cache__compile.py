"""The cached one-token step under torch.compile in reduce-overhead mode: fused and replayed as a CUDA graph."""

import torch
from torch import Tensor

from ch15.baseline_kv_cache import workload as workload
from common.models.caches import Cache, continuing, new_cache, prefilling
from common.models.decoder import Shape, Weights, forward, greedy
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)


def decode(weights: Weights, shape: Shape, cache: Cache, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    hidden = forward(weights, shape, tokens, positions, continuing(cache, positions))
    return greedy(weights, hidden), hidden


def prepare(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> Metered:
    start, end = prompt.shape[1], prompt.shape[1] + new
    tokens = prompt.new_empty(len(prompt), new)
    positions = torch.arange(end, device=prompt.device).repeat(len(prompt), 1)
    states = weights["head"].new_empty(len(prompt), new, shape.width)
    cache = new_cache(shape, len(prompt), end, states)
    compiled = torch.compile(decode, mode="reduce-overhead", fullgraph=True, dynamic=False)
    for tensor in (*torch.utils._pytree.tree_leaves(weights), *cache.keys, *cache.values):
        torch._dynamo.mark_static_address(tensor, guard=False)  # else each replay copies them first

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        hidden = forward(weights, shape, prompt, positions[:, :start], prefilling(cache))[:, -1:]
        chosen = greedy(weights, hidden)
        for index, length in enumerate(range(start, end)):
            states[:, index], tokens[:, index] = hidden[:, 0], chosen[:, 0]
            deliver(range(len(prompt)))
            if length + 1 < end:
                torch.compiler.cudagraph_mark_step_begin()
                here = positions[:, length : length + 1].clone()
                chosen, hidden = compiled(weights, shape, cache, tokens[:, index : index + 1].clone(), here)
        return tokens, states

    return metered(serve, prompt.device)
