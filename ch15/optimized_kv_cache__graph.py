"""The one-token step is a CUDA graph: its many small kernels follow each other without a launch of their own."""

import torch
from torch import Tensor

from ch15.baseline_kv_cache import workload as workload
from common.models.caches import continuing, new_cache, prefilling
from common.models.decoder import Shape, Weights, forward, greedy
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.workload import Metered


def prepare(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> Metered:
    (batch, start), head = prompt.shape, weights["head"]
    cache = new_cache(shape, batch, start + new, head)
    tokens, states = prompt.new_empty(batch, new), head.new_empty(batch, new, shape.width)
    made, latest = prompt.new_zeros(1), prompt.new_zeros(batch)  # on the device, where a replay finds them
    positions = torch.arange(start, device=prompt.device).expand(batch, -1)

    def choose(hidden: Tensor) -> None:
        latest.copy_(greedy(weights, hidden))
        tokens[:, made], states[:, made] = latest[:, None], hidden[:, None]
        made.add_(1)

    def decode() -> None:
        here = (made + (start - 1)).expand(batch, 1)
        choose(forward(weights, shape, latest[:, None], here, continuing(cache, here))[:, 0])

    decode_again = replayable(decode, prompt.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        made.zero_()
        choose(forward(weights, shape, prompt, positions, prefilling(cache))[:, -1])
        deliver(range(batch))
        for _ in range(new - 1):
            decode_again()
            deliver(range(batch))
        return tokens, states

    return metered(serve, prompt.device)
