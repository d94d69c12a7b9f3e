"""The decoder once more, as plainly as possible: no cache, no fused operator, one sequence at a time.

It shares only the shapes and the meaning of the weights with `decoder`. Given float64 weights it is the truth.
"""

import torch
from torch import Tensor

from common.models.decoder import EPSILON, Shape, Weights


def hidden_states(weights: Weights, shape: Shape, tokens: Tensor, past: Tensor | None = None) -> Tensor:
    """Hidden states (length, width) after the last norm, of one sequence of tokens (length).

    past: keys, turned, and values of the tokens before them (layers, 2, earlier, kv_heads, head_dim).
    """
    x = weights["embedding"][tokens]
    length, group, dim = len(tokens), shape.heads // shape.kv_heads, shape.head_dim
    past = x.new_empty(shape.layers, 2, 0, shape.kv_heads, dim) if past is None else past
    every = past.shape[2] + length
    future = torch.ones(every, every, dtype=torch.bool, device=x.device).triu(1)[-length:]
    rotation = _rotation(shape, every, x)[-length:, None]
    for layer, before in zip(weights["layers"], past):
        qkv = (_normed(x, layer["attention_norm"]) @ layer["qkv"].T).view(length, -1, dim)
        q, k, v = qkv.tensor_split((shape.heads, shape.heads + shape.kv_heads), dim=1)
        k, v = (torch.cat(two).repeat_interleave(group, 1) for two in zip(before, (_rotated(k, rotation), v)))
        scores = torch.einsum("qhd,khd->hqk", _rotated(q, rotation), k) / dim**0.5
        attended = torch.einsum("hqk,khd->qhd", scores.masked_fill_(future, -torch.inf).softmax(-1), v)
        x = x + attended.reshape(length, -1) @ layer["out"].T
        gate, up = (_normed(x, layer["mlp_norm"]) @ layer["gate_up"].T).tensor_split(2, -1)
        x = x + (gate * gate.sigmoid() * up) @ layer["down"].T
    return _normed(x, weights["norm"])


def _normed(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gain


def _rotation(shape: Shape, length: int, like: Tensor) -> Tensor:
    """Unit complex numbers (length, head_dim / 2), one for each position and pair."""
    pairs = torch.arange(shape.head_dim // 2, device=like.device, dtype=torch.float64)
    angles = torch.outer(
        torch.arange(length, device=like.device).double(), shape.rope_base ** (-2 * pairs / shape.head_dim)
    )
    return torch.polar(torch.ones_like(angles), angles)


def _rotated(x: Tensor, rotation: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.complex(x[..., :half].double(), x[..., half:].double()) * rotation
    return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)


def planted(
    weights: Weights, shape: Shape, prompt: Tensor, count: int, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The greedy continuation of a prompt (length), behind a `past`, by `count` tokens, and the states that chose them.

    The planted successors are guessed and put through the network in one pass. If each is the choice of the state
    before it, then by induction they are what greedy decoding finds. Raises ValueError where one is not.
    """
    chain = [prompt[-1]]
    for _ in range(count):
        chain.append(weights["successor"][chain[-1]])
    guess = torch.stack(chain[1:])
    hidden = hidden_states(weights, shape, torch.cat([prompt, guess[:-1]]), past)[len(prompt) - 1 :]
    if not torch.equal((hidden @ weights["head"].T).argmax(-1), guess):
        raise ValueError("greedy decoding leaves the planted chain: the vocabulary is too large for the width")
    return guess, hidden
