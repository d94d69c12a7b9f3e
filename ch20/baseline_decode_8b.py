"""Each operator of each token is launched by itself: over a thousand kernels, and most end sooner than launched."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.caches import appending, new_cache
from common.models.decoder import EPSILON, SHAPES, Linear, Shape, Weights, block, draw_weights, turns
from common.models.int4 import GROUP, on_int4_grid
from common.models.references import planted
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

requires = needs(memory_gib=60)  # 16 GB of weights, a clone to see that nobody writes them, two layers in float64
Pair = tuple[Tensor, Tensor]
MODELS = SHAPES | {"small": Shape(6, 288, 6, 6, 768, 2048), "odd": Shape(2, 96, 6, 2, 131, 97)}


def inputs(draw: Draw, model: str, new: int, dtype: str) -> Inputs:
    """A first token, and weights that lie on an int4 grid, which bf16 holds exactly: one answer for both precisions."""
    shape = MODELS[model]
    weights = draw_weights(draw, shape, getattr(torch, dtype), keep=on_int4_grid)
    return {"weights": weights, "shape": shape, "first": draw.integers(1, 1, high=shape.vocabulary), "new": new}


def reference(weights: Weights, shape: Shape, first: Tensor, new: int) -> Pair:
    """The tokens (1, new) and the hidden states that chose them, in one pass; layers are widened one at a time."""
    layers = ({name: matrix.double() for name, matrix in layer.items()} for layer in weights["layers"])
    wide = {name: weights[name].double() for name in ("embedding", "norm", "head")}
    tokens, states = planted({**weights, **wide, "layers": layers}, shape, first[0], new)
    return tokens[None], states[None]


def cost(model: str, new: int, dtype: str) -> Cost:
    """Each token reads four bits of every weight, two bytes for every group's scale, and the cache."""
    shape, element = MODELS[model], getattr(torch, dtype).itemsize
    weight_bytes = shape.read_weights // 2 + 2 * shape.read_weights // GROUP
    earlier = new * (new - 1) // 2  # tokens found in the cache, over all steps
    read, flops = new * weight_bytes + element * shape.kv_numbers * earlier, 2 * new * shape.read_weights
    return Cost(read=read, flops=flops, dtype="bf16", passes=new, items=new, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"model": "llama31_8b", "new": 4, "dtype": "bfloat16"},
        "cpu": {"model": "small", "new": 4, "dtype": "float32"},  # stories15m, but for 32,000 words
        "test": {"model": "odd", "new": 5, "dtype": "float32"},
    },
    tolerance=4e-2,  # of bf16, which rounds the stream of hidden states 64 times on its way through 32 blocks
    frozen=("weights",),
    as_drawn=("weights",),
    clock="end_to_end",
    rungs="graph compile int4 mma_int4",
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
    weights: Weights,
    shape: Shape,
    first: Tensor,
    new: int,
    linear: Linear = F.linear,
    compiled: Callable[[Any], Any] = lambda code: code,
    repeat: Callable[..., Callable[[], None]] = lambda work, device: work,
) -> Metered:
    """Greedy decoding with a static cache. Nothing is asked of the device, so the host may run ahead of it."""
    embedding, position, token = weights["embedding"], torch.zeros_like(first), first.clone()
    tokens, states = first.new_empty(1, new), embedding.new_empty(1, new, shape.width)
    cache, last = new_cache(shape, 1, new, embedding), {name: weights[name] for name in ("norm", "head")}
    # One block is compiled and called in turn: the kernels of the whole network, for a fraction of the compiling.
    through_block, pick = compiled(decode_block), compiled(choose)

    def advance() -> None:
        x, (cos, sin) = F.embedding(token, embedding), turns(shape, position, embedding.dtype)
        for layer, keys, values in zip(weights["layers"], cache.keys, cache.values):
            x = through_block(layer, shape, x, (cos, sin, keys, values, position), linear)
        chosen, hidden = pick(last, x, linear)
        tokens.index_copy_(1, position[0], chosen)
        states.index_copy_(1, position[0], hidden)
        token.copy_(chosen)
        position.add_(1)

    again = repeat(advance, first.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> Pair:
        token.copy_(first), position.zero_()
        for _ in range(new):
            again()
            deliver([0])
        return tokens, states

    return metered(serve, first.device)


def prepare(weights: Weights, shape: Shape, first: Tensor, new: int) -> Metered:
    return generation(weights, shape, first, new)
