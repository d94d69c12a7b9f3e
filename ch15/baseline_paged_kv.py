"""Each request reserves a row of the cache as long as the longest that may come, however short it is."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.models.lengths import SHAREGPT_ANSWER, SPREAD, length_mix
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # of Llama-3.1-8B


def inputs(draw: Draw, requests: int, longest: int, mean: float, spread: float, dtype: str) -> Inputs:
    """Keys and values arrive packed, request after request; the multiset of lengths is the same in every draw."""
    mix, element = torch.tensor(length_mix(requests, mean, longest, spread)), getattr(torch, dtype)
    lengths = mix[draw.permutation(requests).cpu()]  # on the host, where a scheduler has them
    queries = draw.normal(requests, HEADS, HEAD_DIM, std=2.0, dtype=element)
    keys, values = (draw.normal(int(mix.sum()), KV_HEADS, HEAD_DIM, dtype=element) for _ in range(2))
    return {"lengths": lengths, "longest": longest, "queries": queries, "keys": keys, "values": values}


def reference(lengths: Tensor, longest: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """What each request's one query sees of its own tokens: (requests, heads, head_dim)."""
    seen, group = [], HEADS // KV_HEADS
    for q, k, v in zip(queries, keys.split(lengths.tolist()), values.split(lengths.tolist())):
        scores = torch.einsum("hgd,thd->hgt", q.view(KV_HEADS, group, -1), k) / HEAD_DIM**0.5
        seen.append(torch.einsum("hgt,thd->hgd", scores.softmax(-1), v).flatten(0, 1))
    return torch.stack(seen)


def cost(requests: int, longest: int, mean: float, spread: float, dtype: str) -> Cost:
    """Queries, keys and values come in once. They need not be stored for what the step returns."""
    tokens, flops = sum(length_mix(requests, mean, longest, spread)), 4 * HEADS * HEAD_DIM
    queries = 2 * requests * HEADS * HEAD_DIM
    moved = {"read": 4 * KV_HEADS * HEAD_DIM * tokens + queries, "write": queries}
    return Cost(**moved, flops=flops * tokens, dtype="bf16", items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"requests": 256, "longest": 2048, "mean": SHAREGPT_ANSWER, "spread": SPREAD, "dtype": "bfloat16"},
        "test": {"requests": 5, "longest": 61, "mean": 20.0, "spread": 1.0, "dtype": "float16"},  # interpreted: no bf16
    },
    tolerance=1e-2,  # of bf16 shares and sums
    goal="memory",
)

ROWS, TOKENS = tl.constexpr(16), tl.constexpr(64)  # of queries: those that share a key head, filled up for the dot


@triton.jit
def attend_pages(
    queries, keys, values, table, lengths, out, page, span, HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr
):
    """One program for a request and a key head: it walks the request's tokens, TOKENS at a time, page by page.
    queries (requests, kv heads, GROUP, DIM); keys, values (pages, page, kv heads, DIM); table (requests, span)."""
    request, head = tl.program_id(0), tl.program_id(1)
    row, dim = tl.arange(0, ROWS)[:, None], tl.arange(0, DIM)[None, :]
    mine = (request * HEADS + head) * GROUP * DIM + row * DIM + dim
    query = tl.load(queries + mine, mask=row < GROUP, other=0.0)
    length = tl.load(lengths + request)
    largest, share = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, DIM), tl.float32)
    for first in range(0, length, TOKENS):
        token = first + tl.arange(0, TOKENS)
        held = token < length
        number = tl.load(table + request * span + token // page, mask=held, other=0).to(tl.int64)
        place = ((number * page + token % page) * HEADS + head) * DIM
        key = tl.load(keys + place[:, None] + dim, mask=held[:, None], other=0.0)
        value = tl.load(values + place[:, None] + dim, mask=held[:, None], other=0.0)
        scores = tl.where(held[None, :], tl.dot(query, tl.trans(key)) * DIM**-0.5, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weight, faded = tl.exp(scores - higher[:, None]), tl.exp(largest - higher)
        largest, share = higher, share * faded + tl.sum(weight, 1)
        total = tl.dot(weight.to(value.dtype), value, total * faded[:, None])
    tl.store(out + mine, total / share[:, None], mask=row < GROUP)


def on_device(numbers: Tensor, like: Tensor) -> Tensor:
    """A scheduler's few numbers, sent without waiting: the driver has copied them aside when the call returns."""
    return numbers.to(like.device, non_blocking=True)


def stored(page: int, lengths: Tensor, packed: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Packed keys and values in new pools of just enough pages, and the first page of each request."""
    counts = (lengths + page - 1) // page
    first = counts.cumsum(0) - counts
    shift = on_device(first * page - (lengths.cumsum(0) - lengths), packed[0])
    requests = torch.repeat_interleave(on_device(lengths, shift), output_size=len(packed[0]))
    slots = torch.arange(len(requests), device=shift.device) + shift[requests]
    pools = [new.new_empty(int(counts.sum()), page, *new.shape[1:]) for new in packed]
    for pool, new in zip(pools, packed):
        pool.flatten(0, 1).index_copy_(0, slots, new)
    return pools, first


def caching(page: int, lengths: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Metered:
    def step() -> Tensor:
        pools, first = stored(page, lengths, [keys, values])
        span = -(-int(lengths.max()) // page)
        table = on_device(first, keys)[:, None] + torch.arange(span, device=keys.device)  # beyond its length not read
        sizes, out = (page, span, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM), torch.empty_like(queries)
        given = queries, *pools, table, on_device(lengths, keys), out, *sizes
        attend_pages[len(table), KV_HEADS](*given, num_warps=4, num_stages=3)
        return out

    def metrics() -> dict[str, float]:
        parts = {"held": stored(page, lengths, [keys, values])[0], "used": [keys, values]}
        return {f"cache {name} MB": sum(tensor.nbytes for tensor in each) / 1e6 for name, each in parts.items()}

    return Metered(step, metrics)


def prepare(lengths: Tensor, longest: int, queries: Tensor, keys: Tensor, values: Tensor) -> Metered:
    return caching(longest, lengths, queries, keys, values)
