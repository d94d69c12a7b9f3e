"""One small, real decoder that chapters 15, 16 and 20 share: Llama's blocks, with random weights of published shapes.

A block is RMSNorm, attention with grouped queries and rotary positions, RMSNorm, SwiGLU. What a variant decides is how
attention reaches the keys and values of earlier tokens: `forward` calls the `attend` that it is given (`caches`).
`references` computes the same network in another way, and a test holds the two together.

On several GPUs: ch15:disagg_prefill_decode has all of it on each rank, held against `references` at `bench` size in
bf16, one sequence at a time. ch20:tp_decode_70b, with an eighth of a network on each of two ranks, has its own code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Draw

EPSILON = 1e-5  # of RMSNorm, as in Llama 3
SHARPNESS = 2.0  # standard deviation of attention's scores: with 1, every token would see little but the mean of all
Weights = dict[str, Any]  # embedding, head, norm, successor; layers: a list of dicts
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer, queries, keys, values to the attended, like queries
Turning = tuple[Tensor, Tensor]  # cosine and sine
Linear = Callable[[Tensor, Any], Tensor]  # activations (..., in) and a matrix in whatever form, to (..., out)


@dataclass(frozen=True)
class Shape:
    """What Llama's `config.json` says of a network, under shorter names; `hidden` is SwiGLU's width."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    rope_base: float = 10_000.0

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def layer_weights(self) -> int:
        """Numbers in a block's matrices."""
        projections = (2 * self.heads + 2 * self.kv_heads) * self.head_dim
        return self.width * (projections + 3 * self.hidden)

    @property
    def read_weights(self) -> int:
        """Numbers in the matrices that each decoded token meets: all blocks and the head, but not the embedding."""
        return self.layers * self.layer_weights + self.width * self.vocabulary

    @property
    def prompt_weights(self) -> int:
        """Numbers in the matrices that each token of a prompt meets: of the last block those for keys and values."""
        return (self.layers - 1) * self.layer_weights + self.width * self.kv_numbers // self.layers

    @property
    def kv_numbers(self) -> int:
        """Numbers that a token leaves in the cache, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim


# From the models' published configurations: llama2.c (stories15M, stories110M), SmolLM2-135M, TinyLlama-1.1B,
# Llama-3.2-1B and Llama-3.1-8B. Positions are turned by the base alone: Llama 3.1 also rescales it for long contexts.
SHAPES = {
    "stories15m": Shape(6, 288, 6, 6, 768, 32000),
    "stories110m": Shape(12, 768, 12, 12, 2048, 32000),
    "smollm2_135m": Shape(30, 576, 9, 3, 1536, 49152, 100_000.0),
    "tinyllama_1b": Shape(22, 2048, 32, 4, 5632, 32000),
    "llama32_1b": Shape(16, 2048, 32, 8, 8192, 128256, 500_000.0),
    "llama31_8b": Shape(32, 4096, 32, 8, 14336, 128256, 500_000.0),
}


def draw_weights(
    draw: Draw,
    shape: Shape,
    dtype: torch.dtype = torch.bfloat16,
    keep: Callable[[Tensor], Tensor] = lambda matrix: matrix,
) -> Weights:
    """Random weights whose greedy choice is beyond doubt: after token t comes `successor[t]`, by a wide margin.

    The head's row for t's successor is t's embedding. Two correct programs round differently, and on plain noise they
    would soon choose different tokens. All blocks together add about half as much as the embedding, so the hidden
    states still depend on every earlier token. Of each matrix, as soon as it is drawn, `keep(matrix)` is kept. Costs of
    pairs that decode count a pass a token: they leave out that the embedding alone would guess these tokens.
    """
    width, inner = shape.width, shape.hidden
    attended, shared = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    depth = (2 * shape.layers) ** -0.5  # a block adds less the more there are, as in GPT-2
    embedding, successor = keep(draw.normal(shape.vocabulary, width, dtype=dtype)), draw.permutation(shape.vocabulary)
    head = torch.empty_like(embedding)
    head[successor] = embedding

    def layer() -> dict[str, Tensor]:
        qkv = draw.normal(attended + shared, width, std=width**-0.5, dtype=dtype)
        qkv[:attended] *= SHARPNESS
        return {
            "attention_norm": draw.uniform(width, low=0.5, high=1.5, dtype=dtype),
            "qkv": keep(qkv),
            "out": keep(draw.normal(width, attended, std=depth * attended**-0.5, dtype=dtype)),
            "mlp_norm": draw.uniform(width, low=0.5, high=1.5, dtype=dtype),
            "gate_up": keep(draw.normal(2 * inner, width, std=width**-0.5, dtype=dtype)),
            "down": keep(draw.normal(width, inner, std=depth * inner**-0.5, dtype=dtype)),
        }

    layers, norm = [layer() for _ in range(shape.layers)], draw.uniform(width, low=0.5, high=1.5, dtype=dtype)
    return {"embedding": embedding, "layers": layers, "norm": norm, "head": head, "successor": successor}


def forward(weights: Weights, shape: Shape, tokens: Tensor, positions: Tensor | Turning, attend: Attend) -> Tensor:
    """Hidden states (batch, length, width) after the last norm, of tokens (batch, length) at these positions.

    `attend(layer, q, k, v)` gets q (batch, length, heads, head_dim), k and v (batch, length, kv_heads, head_dim).
    Under torch.compile give their `turns` for `positions`, or each kernel that needs angles computes them anew.
    """
    x = F.embedding(tokens, weights["embedding"])
    cos, sin = turns(shape, positions, x.dtype) if isinstance(positions, Tensor) else positions
    for index, layer in enumerate(weights["layers"]):
        x = block(layer, shape, x, cos, sin, partial(attend, index))
    return F.rms_norm(x, (shape.width,), weights["norm"], EPSILON)


def block(
    layer: dict[str, Any],
    shape: Shape,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    linear: Linear = F.linear,
) -> Tensor:
    """The hidden states after one block; `turns` gives cos and sin, and `linear` applies the block's matrices."""
    split = (shape.heads, shape.kv_heads, shape.kv_heads)
    qkv = linear(F.rms_norm(x, (shape.width,), layer["attention_norm"], EPSILON), layer["qkv"])
    q, k, v = qkv.unflatten(-1, (-1, shape.head_dim)).split(split, dim=2)
    attended = attend(turned(q, cos, sin), turned(k, cos, sin), v)
    x = x + linear(attended.flatten(2), layer["out"])
    gate, up = linear(F.rms_norm(x, (shape.width,), layer["mlp_norm"], EPSILON), layer["gate_up"]).chunk(2, -1)
    return x + linear(F.silu(gate) * up, layer["down"])


def turns(shape: Shape, positions: Tensor, dtype: torch.dtype) -> Turning:
    """Cosine and sine (batch, length, 1, head_dim / 2) of the angles by which each pair of numbers is turned."""
    steps = torch.arange(0, shape.head_dim, 2, device=positions.device, dtype=torch.float32) / shape.head_dim
    angles = positions[..., None, None].float() * shape.rope_base**-steps
    return angles.cos().to(dtype), angles.sin().to(dtype)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: number i of a head is paired with number i + head_dim / 2."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def greedy(weights: Weights, hidden: Tensor) -> Tensor:
    """The likeliest next token of each hidden state (..., width)."""
    return F.linear(hidden, weights["head"]).argmax(-1)
