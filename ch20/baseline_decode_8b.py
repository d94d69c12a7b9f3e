"""Each operator of each token is launched by itself: over a thousand kernels, and most end sooner than launched."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.caches import appending, grouped_attention
from common.models.decoder import EPSILON, SHAPES, Linear, Shape, Weights, block, draw_weights, forward, turns
from common.models.int4 import GROUP, on_int4_grid
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

requires = needs(memory_gib=44)  # 31, and 43 where a variant overwrote the weights, so that they are drawn again
Pair = tuple[Tensor, Tensor]
MODELS = SHAPES | {"small": Shape(6, 288, 6, 6, 768, 2048), "odd": Shape(2, 384, 3, 1, 131, 97)}


def inputs(draw: Draw, model: str, new: int, dtype: str, context: int) -> Inputs:
    """A token, keys (already turned) and values before it, and weights on an int4 grid, which bf16 holds exactly."""
    shape, element = MODELS[model], getattr(torch, dtype)
    weights = draw.kept.get("weights") or draw_weights(draw, shape, element, on_int4_grid)  # 15 GiB, once
    first = draw.integers(1, 1, high=shape.vocabulary)
    earlier = draw.normal(2, shape.layers, shape.kv_heads, context, shape.head_dim, dtype=element)
    return {"weights": weights, "shape": shape, "first": first, "earlier": earlier, "new": new}


def reference(weights: Weights, shape: Shape, first: Tensor, earlier: Tensor, new: int) -> Pair:
    """The tokens (1, new) behind the planted ones, and their hidden states, in one pass; layers are widened in turn."""
    layers, chain = ({n: m.double() for n, m in layer.items()} for layer in weights["layers"]), [first[0]]
    for _ in range(new - 1):
        chain.append(weights["successor"][chain[-1]])
    ends = {"embedding": weights["embedding"][torch.cat(chain)].double(), "norm": weights["norm"].double()}
    every = torch.arange(earlier.shape[3] + new, device=first.device)[None]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys_and_values = earlier[:, layer, None].double(), torch.stack((k, v)).transpose(2, 3)
        return grouped_attention(q, *torch.cat(keys_and_values, dim=3), every <= every[:, -new:, None])

    states = forward({**ends, "layers": layers}, shape, every[:, :new], every[:, -new:], attend)
    return torch.cat([states @ rows.double().T for rows in weights["head"].split(8192)], -1).argmax(-1), states


def cost(model: str, new: int, dtype: str, context: int) -> Cost:
    """Each token reads four bits of every weight, two bytes for every group's scale, and the cache."""
    shape, cached = MODELS[model], new * context + new * (new - 1) // 2  # tokens in the cache, over all steps
    weight_bytes = shape.read_weights // 2 + 2 * shape.read_weights // GROUP
    read = new * weight_bytes + getattr(torch, dtype).itemsize * shape.kv_numbers * cached
    return Cost(read=read, flops=2 * new * shape.read_weights, dtype="bf16", passes=new, items=new, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"model": "llama31_8b", "new": 4, "dtype": "bfloat16", "context": 4096},
        "cpu": {"model": "small", "new": 4, "dtype": "float32", "context": 64},  # stories15m, but for 32,000 words
        "test": {"model": "odd", "new": 5, "dtype": "float32", "context": 37},
    },
    tolerance=4e-2,  # of bf16, which rounds the stream of hidden states 64 times on its way through 32 blocks
    frozen=("weights", "earlier"),
    as_drawn=("weights", "earlier"),
    clock="end_to_end",
    rungs="graph compile int4",
)


def decode_block(layer: Weights, shape: Shape, x: Tensor, at: tuple[Tensor, ...], linear: Linear) -> Tensor:
    """One block for one token (1, 1, width); `at` has cosines, sines, the block's keys and values, and the position."""
    cos, sin, keys, values, position = at
    return block(layer, shape, x, cos, sin, appending(keys, values, position), linear)


def choose(last: Weights, x: Tensor, linear: Linear) -> Pair:
    """The likeliest next token (1, 1), and the normed hidden state (1, 1, width) that it is read from."""
    hidden = F.rms_norm(x, x.shape[-1:], last["norm"], EPSILON)
    return linear(hidden, last["head"]).argmax(-1), hidden


def generation(
    weights: Weights, shape: Shape, first: Tensor, earlier: Tensor, new: int, linear: Linear = F.linear,
    compiled: Callable[[Any], Any] = lambda code: code,
    repeat: Callable[..., Callable[[], None]] = lambda work, device: work,
) -> Metered:  # fmt: skip
    """Greedy decoding with a static cache. Nothing is asked of the device, so the host may run ahead of it."""
    embedding, context, token = weights["embedding"], earlier.shape[3], first.clone()
    position, last = torch.full_like(first, context), {name: weights[name] for name in ("norm", "head")}
    cache = [[F.pad(x, (0, 0, 0, new))[None] for x in kind] for kind in earlier]
    tokens, states = first.new_empty(1, new), embedding.new_empty(1, new, shape.width)
    # One block is compiled and called in turn: the kernels of the whole network, for a fraction of the compiling.
    through_block, pick = compiled(decode_block), compiled(choose)

    def advance() -> None:
        x, (cos, sin) = F.embedding(token, embedding), turns(shape, position, embedding.dtype)
        for layer, keys, values in zip(weights["layers"], *cache):
            x = through_block(layer, shape, x, (cos, sin, keys, values, position), linear)
        chosen, hidden = pick(last, x, linear)
        tokens.index_copy_(1, position[0] - context, chosen)
        states.index_copy_(1, position[0] - context, hidden)
        token.copy_(chosen), position.add_(1)

    again = repeat(advance, first.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> Pair:
        token.copy_(first), position.fill_(context)
        for _ in range(new):
            again()
            deliver([0])
        return tokens, states

    return metered(serve, first.device)


def prepare(weights: Weights, shape: Shape, first: Tensor, earlier: Tensor, new: int) -> Metered:
    return generation(weights, shape, first, earlier, new)
