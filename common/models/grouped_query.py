"""Grouped-query attention: a decode step's inputs and cost, a plain form for float64 references, live pairs counted."""

from collections.abc import Iterable

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs


def decode_inputs(draw: Draw, requests: int, heads: int, group: int, keys: int, width: int, dtype: str) -> Inputs:
    """Of each request a new token's queries, `group` for each key head, and a contiguous cache."""
    sides = {"q": group, "k": keys, "v": keys}
    return {name: draw.normal(requests, heads, n, width, dtype=getattr(torch, dtype)) for name, n in sides.items()}


def decode_cost(requests: int, heads: int, group: int, keys: int, width: int, dtype: str, table: int = 0) -> Cost:
    """Of one new token a request in 16-bit numbers; a block table of `table` bytes is read too."""
    cache, queries = 2 * requests * heads * keys * width, requests * heads * group * width
    moved = {"read": 2 * (cache + queries) + table, "write": 2 * queries}
    return Cost(flops=2 * group * cache, dtype="bf16", **moved, items=requests, unit="tokens")


def attended(q: Tensor, k: Tensor, v: Tensor, live: Tensor | None = None) -> Tensor:
    """Grouped-query attention, in the shape of q: (key heads x group, width) or (key heads, queries, width).

    k, v: (key heads, tokens, width). live: bool (queries, tokens), true where a query sees a key (default: all).
    One key head at a time: in float64 the scores of 16,384 tokens are 2 GiB.
    """
    parts = []
    for queries, keys, values in zip(q.reshape(len(k), -1, q.shape[-1]), k, v):
        scores = (queries @ keys.mT).mul_(q.shape[-1] ** -0.5)
        if live is not None:
            scores.masked_fill_(~live, -torch.inf)
        parts.append(scores.softmax(dim=1) @ values)
    return torch.stack(parts).view(q.shape)


def live_pairs(lengths: Iterable[int], window: int | None = None) -> int:
    """Query-key pairs of causal texts of these lengths; with `window`, each query sees its last `window` tokens."""
    seen = ((length, min(length, window or length)) for length in lengths)
    return sum(length * most - most * (most - 1) // 2 for length, most in seen)
