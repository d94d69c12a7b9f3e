"""Keys and values are kept, and a one-token step is twelve fused kernels that a CUDA graph replays."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch15.baseline_kv_cache import workload as workload
from common.models.caches import causal_attention
from common.models.codes import own
from common.models.decoder import EPSILON, Shape, Weights, block, turned, turns
from common.models.fused_decode import Decoder
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(tools=["g++"])


def keep(k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> None:
    keys[:, :, : k.shape[1]], values[:, :, : v.shape[1]] = k.transpose(1, 2), v.transpose(1, 2)


def pass_block(
    layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """A whole prompt through a block, whose keys and values are kept."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keep(k, v, keys, values)
        return causal_attention(q, k, v)

    return block(layer, shape, x, cos, sin, attend)


def keep_last(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor) -> None:
    """All that later tokens need of a prompt from the last block: its keys and values."""
    normed = F.rms_norm(x, (shape.width,), layer["attention_norm"], EPSILON)
    both = F.linear(normed, layer["qkv"][shape.heads * shape.head_dim :]).unflatten(-1, (2, -1, shape.head_dim))
    k, v = both.unbind(2)
    keep(turned(k, cos, sin), v, keys, values)


def prepare(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> Metered:
    batch, start = prompt.shape
    decoder = Decoder(weights, shape, batch, start, new)
    positions = torch.arange(start, device=prompt.device).expand(batch, -1)
    cache, last = decoder.cache, shape.layers - 1
    through_block, through_last = (
        torch.compile(own(code, __file__), fullgraph=True, dynamic=False) for code in (pass_block, keep_last)
    )

    def prefill() -> None:
        x = F.embedding(prompt, weights["embedding"])
        cos, sin = turns(shape, positions, x.dtype)
        for layer, keys, values in zip(weights["layers"][:-1], cache.keys, cache.values):
            x = through_block(layer, shape, x, cos, sin, keys, values)
        through_last(weights["layers"][last], shape, x, cos, sin, cache.keys[last], cache.values[last])
        decoder.made.zero_()
        decoder.stream.copy_(x[:, -1])  # only the prompts' last tokens go through the rest of the last block
        decoder.block(last)
        decoder.choose()

    prefill_again = replayable(prefill, prompt.device)
    decode_again = replayable(decoder.advance, prompt.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        prefill_again()
        deliver(range(batch))
        for _ in range(new - 1):
            decode_again()
            deliver(range(batch))
        return decoder.tokens, decoder.states

    return metered(serve, prompt.device)
