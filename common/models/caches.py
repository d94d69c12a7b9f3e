"""Where keys and values are kept, and attention over them: contiguous rows, or pages that a table points to.

Both caches of a layer have the layout (batch or pages, kv_heads, tokens, head_dim). Queries of one group share a key
head, so they go into one matrix product as its rows, and no key is repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.decoder import Attend, Shape


@dataclass(frozen=True)
class Cache:
    """Keys and values by layer; `capacity` tokens in each row (or page)."""

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]


def new_cache(shape: Shape, rows: int, capacity: int, like: Tensor) -> Cache:
    """An empty cache with the dtype and device of `like`. Zeros: what is masked is still multiplied, by zero."""
    sizes = (rows, shape.kv_heads, capacity, shape.head_dim)
    keys, values = ([like.new_zeros(sizes) for _ in range(shape.layers)] for _ in range(2))
    return Cache(keys, values)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of a sequence to itself: q (batch, length, heads, head_dim), k and v (batch, length, kv_heads, ...)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


def grouped_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of q (batch, length, heads, head_dim) to keys (batch, kv_heads, tokens, head_dim) where mask is true.

    mask: bool (batch, length, tokens). Every query must see at least one token.
    """
    grouped = q.unflatten(2, (keys.shape[1], -1)).permute(0, 2, 3, 1, 4)  # batch, kv_heads, group, length, head_dim
    scores = grouped.flatten(2, 3) @ keys.mT * q.shape[-1] ** -0.5
    scores = scores.unflatten(2, grouped.shape[2:4]).masked_fill(~mask[:, None, None], -torch.inf)
    shares = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
    attended = shares.flatten(2, 3) @ values
    return attended.unflatten(2, grouped.shape[2:4]).permute(0, 3, 1, 2, 4).flatten(2, 3)


def uncached() -> Attend:
    """Every token of the sequence is present, and nothing is kept."""
    return lambda layer, q, k, v: causal_attention(q, k, v)


def prefilling(cache: Cache, rows: Tensor | None = None) -> Attend:
    """Whole prompts from position 0: keys and values go to the given rows of the cache (all, without any)."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length = k.shape[1]
        for store, new in ((cache.keys[layer], k), (cache.values[layer], v)):
            if rows is None:
                store[:, :, :length] = new.transpose(1, 2)
            else:
                store[rows, :, :length] = new.transpose(1, 2)
        return causal_attention(q, k, v)

    return attend


def continuing(cache: Cache, positions: Tensor, extent: int | None = None) -> Attend:
    """Further tokens at positions (batch, length) of every row: stored first, then they see what lies before them.

    extent: a bound on the tokens that any row holds, known to the host; attention then reads no further. Without it
    the whole capacity is read, and shapes stay the same from step to step, as a CUDA graph wants them.
    """
    keys = cache.keys[0]
    rows = torch.arange(keys.shape[0], device=keys.device)[:, None, None]
    heads = torch.arange(keys.shape[1], device=keys.device)
    extent = extent or cache.capacity
    mask = torch.arange(extent, device=keys.device) <= positions[..., None]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for store, new in ((cache.keys[layer], k), (cache.values[layer], v)):
            store[rows, heads, positions[..., None]] = new
        return grouped_attention(q, cache.keys[layer][:, :, :extent], cache.values[layer][:, :, :extent], mask)

    return attend


def appending(keys: Tensor, values: Tensor, position: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`continuing` for one layer and one sequence: stores the tokens at `position` (1, length), attends to all so far.

    It takes one layer's tensors instead of a list, so that a compiler sees the same call in every layer.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for store, new in ((keys, k), (values, v)):
            store.index_copy_(2, position[0], new.transpose(1, 2))
        seen = torch.arange(keys.shape[2], device=keys.device) <= position[..., None]
        return grouped_attention(q, keys, values, seen)

    return attend


def paging(pool: Cache, table: Tensor, positions: Tensor) -> Callable[[int, Tensor, Tensor], None]:
    """What stores keys and values of tokens at positions (batch, length) where the table (batch, pages) says."""
    page, slot = table.gather(1, positions // pool.capacity), positions % pool.capacity
    heads = torch.arange(pool.keys[0].shape[1], device=table.device)

    def keep(layer: int, k: Tensor, v: Tensor) -> None:
        for store, new in ((pool.keys[layer], k), (pool.values[layer], v)):
            store[page[..., None], heads, slot[..., None]] = new

    return keep


def prefilling_pages(pool: Cache, table: Tensor, positions: Tensor) -> Attend:
    """`prefilling`, where position p of a row lies in page table[row, p // capacity]; positions begin at 0."""
    keep = paging(pool, table, positions)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keep(layer, k, v)
        return causal_attention(q, k, v)

    return attend


def continuing_pages(pool: Cache, table: Tensor, positions: Tensor) -> Attend:
    """`continuing` with pages. Several rows may name the same page to read it; none may write what others read.

    table: int64 (batch, pages of the longest row). The pages that a row sees are gathered: one more copy of them.
    """
    keep = paging(pool, table, positions)
    mask = torch.arange(table.shape[1] * pool.capacity, device=table.device) <= positions[..., None]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keep(layer, k, v)
        keys, values = (store[layer][table].transpose(1, 2).flatten(2, 3) for store in (pool.keys, pool.values))
        return grouped_attention(q, keys, values, mask)

    return attend
