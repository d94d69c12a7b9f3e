"""The prompt is cut into chunks, and each passes together with a decode step: the same read of weights serves both."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from ch16.baseline_chunked_prefill import workload as workload
from common.models.caches import Cache, continuing, new_cache
from common.models.decoder import Attend, Shape, Weights, forward, greedy
from common.models.timeline import Deliver, metered
from common.python.workload import Metered


def mixed(own: Cache, start: int, end: int, decoding: Attend) -> Attend:
    """Of one row of tokens, the first are the prompt's from start to end, and each other one is of another stream."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        count = end - start
        stores = own.keys[layer][:, :, :end], own.values[layer][:, :, :end]
        for store, new in zip(stores, (k, v)):
            store[:, :, start:] = new[:, :count].transpose(1, 2)
        mask = causal_lower_right(count, end)  # the chunk sees all that came before it, and itself up to each token
        seen = F.scaled_dot_product_attention(q[:, :count].transpose(1, 2), *stores, mask, enable_gqa=True)
        rest = decoding(layer, *(x[0, count:, None] for x in (q, k, v)))
        return torch.cat([seen.transpose(1, 2), rest.transpose(0, 1)], 1)

    return attend


def prepare(
    weights: Weights,
    shape: Shape,
    prompt: Tensor,
    streams: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    steps: int,
) -> Metered:
    own, running = new_cache(shape, 1, prompt.shape[1], weights["head"]), Cache(keys, values)
    tokens, states = streams.new_empty(len(streams), steps), keys[0].new_empty(len(streams), steps, shape.width)
    positions = torch.arange(max(prompt.shape[1], running.capacity), device=prompt.device)[None]
    ends = [prompt.shape[1] * (index + 1) // steps for index in range(steps)]

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, ...]:
        latest = streams[:, -1]
        for index, (start, end) in enumerate(zip([0, *ends], ends)):
            place = streams.shape[1] - 1 + index
            here = positions[:, place].expand(len(streams), 1)
            row = torch.cat([prompt[0, start:end], latest])[None]
            where = torch.cat([positions[:, start:end], here.mT], 1)
            attend = mixed(own, start, end, continuing(running, here, extent=place + 1))
            hidden = forward(weights, shape, row, where, attend)[0]
            states[:, index] = hidden[end - start :]
            latest = greedy(weights, states[:, index])
            tokens[:, index] = latest
            deliver([*range(len(streams)), *[len(streams)] * (index == steps - 1)])
        return tokens, states, hidden[end - start - 1 : end - start]

    return metered(serve, prompt.device)
