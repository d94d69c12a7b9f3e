"""What attention gives, as plainly as can be, for references in float64; and how many products of pairs it needs."""

from collections.abc import Iterable

import torch
from torch import Tensor


def attended(q: Tensor, k: Tensor, v: Tensor, live: Tensor | None = None) -> Tensor:
    """Attention of q, to which k and v (key heads, tokens, width) belong: each key head's queries stand side by side.

    q: (key heads x group, width) or (key heads, queries, width). live: bool (queries, tokens), where a query sees a
    key; without it each sees all. One head at a time: in float64 the scores of 16,384 tokens are 2 GiB.
    """
    parts = []
    for queries, keys, values in zip(q.reshape(len(k), -1, q.shape[-1]), k, v):
        scores = (queries @ keys.mT).mul_(q.shape[-1] ** -0.5)
        if live is not None:
            scores.masked_fill_(~live, -torch.inf)
        parts.append(scores.softmax(dim=1) @ values)
    return torch.stack(parts).view(q.shape)


def live_pairs(lengths: Iterable[int], window: int | None = None) -> int:
    """Pairs of a query and a key that it sees: itself and what came before in its text, at most `window` together."""
    seen = ((length, min(length, window or length)) for length in lengths)
    return sum(length * most - most * (most - 1) // 2 for length, most in seen)
