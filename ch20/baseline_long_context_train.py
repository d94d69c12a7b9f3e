"""Each block keeps its input only; when it runs again, the whole sequence's feed-forward numbers exist at once."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from common.models.caches import causal_attention
from common.models.decoder import EPSILON, Attend, Shape, Weights, draw_weights, turned, turns
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(memory_gib=60)  # the reference has one head's scores in float64, 2 GB, six times
NAMES = ("attention_norm", "qkv", "out", "mlp_norm", "gate_up", "down")
BLOCK_1B = {"layers": 1, "vocabulary": 1, "width": 2048, "heads": 32, "kv_heads": 8, "hidden": 8192}  # Llama-3.2-1B
SMALL = {"layers": 2, "vocabulary": 1, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}
kept_small = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)


def inputs(draw: Draw, shape: dict[str, int], length: int, dtype: str) -> Inputs:
    """Hidden states of one sequence, the blocks' weights, and the slope at the last block's output."""
    network, element = Shape(**shape), getattr(torch, dtype)
    x, slope = (draw.normal(1, length, network.width, dtype=element) for _ in range(2))
    return {"x": x, "slope": slope, "layers": draw_weights(draw, network, element)["layers"], "shape": network}


def attention_half(shape: Shape, attend: Attend, x: Tensor, norm: Tensor, qkv: Tensor, out: Tensor) -> Tensor:
    cos, sin = turns(shape, torch.arange(x.shape[1], device=x.device)[None], x.dtype)
    numbers = F.linear(F.rms_norm(x, norm.shape, norm, EPSILON), qkv).unflatten(-1, (-1, shape.head_dim))
    q, k, v = numbers.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=2)
    return x + F.linear(attend(0, turned(q, cos, sin), turned(k, cos, sin), v).flatten(2), out)


def mlp_half(x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = F.linear(F.rms_norm(x, norm.shape, norm, EPSILON), gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, down)


def by_head(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head at a time, and its scores again for the backward pass: those of all heads would be 69 GB."""
    group = q.shape[2] // k.shape[2]
    heads = [(q[:, :, head], k[:, :, head // group], v[:, :, head // group]) for head in range(q.shape[2])]
    attend = partial(F.scaled_dot_product_attention, is_causal=True)
    return torch.stack([kept_small(attend, *head) for head in heads], 2)


def reference(x: Tensor, slope: Tensor, layers: list[Weights], shape: Shape) -> tuple[Tensor, ...]:
    hidden, leaves = x.requires_grad_(), [layer[name].requires_grad_() for layer in layers for name in NAMES]
    for first in range(0, len(leaves), 6):
        middle = attention_half(shape, by_head, hidden, *leaves[first : first + 3])
        hidden = mlp_half(middle, *leaves[first + 3 : first + 6])
    return hidden.detach(), *torch.autograd.grad(hidden, [x, *leaves], slope)


def cost(shape: dict[str, int], length: int, dtype: str) -> Cost:
    """6 FLOPs for each weight and token, and 12 for each number of a query that meets a key, of which half do."""
    network, size = Shape(**shape), getattr(torch, dtype).itemsize
    weights = network.layers * network.layer_weights
    flops = 6 * length * (weights + network.layers * length * network.width)
    moved = size * (weights + 2 * length * network.width)  # in: weights, x, slope; out: their gradients, hidden states
    return Cost(flops=flops, dtype="bf16", read=moved, write=moved, items=length, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": BLOCK_1B, "length": 16384, "dtype": "bfloat16"},
        "cpu": {"shape": SMALL, "length": 512, "dtype": "float32"},
        "test": {"shape": SMALL, "length": 29, "dtype": "float32"},
    },
    tolerance=3e-2,  # of bf16 through a block and back
    goal="memory",
)


def prepare(x: Tensor, slope: Tensor, layers: list[Weights], shape: Shape) -> Step:
    start, *leaves = (w.detach().requires_grad_() for w in (x, *(layer[name] for layer in layers for name in NAMES)))

    def block(x: Tensor, *weights: Tensor) -> Tensor:
        middle = attention_half(shape, lambda layer, q, k, v: causal_attention(q, k, v), x, *weights[:3])
        return mlp_half(middle, *weights[3:])

    def step() -> tuple[Tensor, ...]:
        hidden = start
        for first in range(0, len(leaves), 6):
            hidden = kept_small(block, hidden, *leaves[first : first + 6])
        return hidden.detach(), *torch.autograd.grad(hidden, [start, *leaves], slope)

    return step
