"""Where keys and values are kept, and attention over them: contiguous rows, or pages that a table points to.

Both caches of a layer have the layout (batch or pages, kv_heads, tokens, head_dim). Queries of one group share a key
head, so they go into one matrix product as its rows, and no key is repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.codes import own
from common.models.decoder import EPSILON, Attend, Shape, Turning, Weights, block, turned, turns

ALL = slice(None)


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


def keep(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, rows: Tensor | slice) -> None:
    keys[rows, :, : k.shape[1]], values[rows, :, : v.shape[1]] = k.transpose(1, 2), v.transpose(1, 2)


def prefilling(cache: Cache) -> Attend:
    """Whole prompts from position 0: keys and values go to the rows of the cache."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keep(k, v, cache.keys[layer], cache.values[layer], ALL)
        return causal_attention(q, k, v)

    return attend


def _pass_block(
    layer: Weights, shape: Shape, x: Tensor, turning: Turning, keys: Tensor, values: Tensor, rows: Tensor | slice
) -> Tensor:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keep(k, v, keys, values, rows)
        return causal_attention(q, k, v)

    return block(layer, shape, x, *turning, attend)


def _keep_last(
    layer: Weights, shape: Shape, x: Tensor, turning: Turning, keys: Tensor, values: Tensor, rows: Tensor | slice
) -> None:
    normed = F.rms_norm(x, (shape.width,), layer["attention_norm"], EPSILON)
    both = F.linear(normed, layer["qkv"][shape.heads * shape.head_dim :]).unflatten(-1, (2, -1, shape.head_dim))
    k, v = both.unbind(2)
    keep(turned(k, *turning), v, keys, values, rows)


def compiled_prefill(
    weights: Weights, shape: Shape, cache: Cache, owner: str
) -> Callable[[Tensor, Tensor, Tensor | slice], Tensor]:
    """`prefilling` by compiled blocks, of the last only what later tokens need: keys and values.

    The pass takes prompts (batch, length), their positions and the cache's rows. It returns what the last block gets,
    (batch, length, width). `owner` is the file of the variant. On a CPU nothing is compiled.
    """
    codes = (own(code, owner) for code in (_pass_block, _keep_last))
    on_cpu = weights["embedding"].device.type == "cpu"
    passed, kept = (torch.compile(code, fullgraph=True, dynamic=False, disable=on_cpu) for code in codes)

    def prefill(tokens: Tensor, positions: Tensor, rows: Tensor | slice = ALL) -> Tensor:
        x = F.embedding(tokens, weights["embedding"])
        turning = turns(shape, positions, x.dtype)
        *before, last = zip(weights["layers"], cache.keys, cache.values)
        for layer, keys, values in before:
            x = passed(layer, shape, x, turning, keys, values, rows)
        layer, keys, values = last
        kept(layer, shape, x, turning, keys, values, rows)
        return x

    return prefill


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
