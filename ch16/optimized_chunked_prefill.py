"""The prompt is cut into chunks, and each passes together with a decode step: the same read of weights serves both."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from ch16.baseline_chunked_prefill import workload as workload
from common.models.caches import appending, new_cache
from common.models.codes import own
from common.models.decoder import EPSILON, Shape, Weights, greedy, turned, turns
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.workload import Metered


def before(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    qkv = F.linear(F.rms_norm(x, x.shape[-1:], layer["attention_norm"], EPSILON), layer["qkv"])
    q, k, v = qkv.unflatten(-1, (-1, shape.head_dim)).split((shape.heads, shape.kv_heads, shape.kv_heads), dim=2)
    return turned(q, cos, sin), turned(k, cos, sin), v


def decoding(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, here: Tensor) -> Tensor:
    """One token of each stream, all at one position `here` (1, 1), as a row (1, streams, heads, head_dim)."""
    return appending(keys, values, here)(q, k, v).transpose(0, 1)


def chunk(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    """The prompt's tokens from `start` on see all that came before them, and themselves up to each token."""
    end = start + q.shape[1]
    for store, new in ((keys, k), (values, v)):
        store[:, :, start:end] = new.transpose(1, 2)
    seen, mask = (keys[:, :, :end], values[:, :, :end]), causal_lower_right(q.shape[1], end)
    return F.scaled_dot_product_attention(q.transpose(1, 2), *seen, mask, enable_gqa=True).transpose(1, 2)


def after(layer: Weights, x: Tensor, seen: Tensor, rest: Tensor) -> Tensor:
    x = x + F.linear(torch.cat([seen, rest], 1).flatten(2), layer["out"])
    gate, up = F.linear(F.rms_norm(x, x.shape[-1:], layer["mlp_norm"], EPSILON), layer["gate_up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, layer["down"])


def settle(weights: Weights, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    hidden = F.rms_norm(x, x.shape[-1:], weights["norm"], EPSILON)[0]
    return greedy(weights, hidden[count:]), hidden


def prepare(
    weights: Weights,
    shape: Shape,
    prompt: Tensor,
    streams: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    steps: int,
) -> Metered:
    (count, history), device = streams.shape, prompt.device
    cache, latest = new_cache(shape, 1, prompt.shape[1], weights["head"]), streams.new_empty(count)
    tokens, states = streams.new_empty(count, steps), keys[0].new_empty(count, steps, shape.width)
    arrived = states.new_empty(1, shape.width)
    ends = [prompt.shape[1] * index // steps for index in range(steps + 1)]
    fused = partial(torch.compile, fullgraph=True, dynamic=False, disable=not prompt.is_cuda)
    opening, stepping, closing, settling = (fused(own(code, __file__)) for code in (before, decoding, after, settle))
    heres = torch.arange(history - 1, history - 1 + steps, device=device)[:, None, None]  # the streams' positions

    def angles(index: int) -> tuple[Tensor, Tensor]:
        where = torch.arange(ends[index], ends[index + 1], device=device)
        return turns(shape, torch.cat([where, heres[index, 0].expand(count)])[None], states.dtype)

    turning = [angles(index) for index in range(steps)]

    def work(index: int) -> None:
        if index == 0:
            latest.copy_(streams[:, -1])
        start, end = ends[index : index + 2]
        x = F.embedding(torch.cat([prompt[0, start:end], latest])[None], weights["embedding"])
        for number, layer in enumerate(weights["layers"]):
            heads = opening(layer, shape, x, *turning[index])
            seen = chunk(*(each[:, : end - start] for each in heads), cache.keys[number], cache.values[number], start)
            rows = (each[0, end - start :, None] for each in heads)
            x = closing(layer, x, seen, stepping(*rows, keys[number], values[number], heres[index]))
        chosen, hidden = settling(weights, x, end - start)
        latest.copy_(chosen)
        tokens[:, index], states[:, index] = chosen, hidden[end - start :]
        arrived.copy_(hidden[end - start - 1 : end - start])

    again = [replayable(partial(work, index), device) for index in range(steps)]

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, ...]:
        for index, replay in enumerate(again):
            replay()
            deliver([*range(count), *[count] * (index == steps - 1)])
        return tokens, states, arrived

    return metered(serve, device)
