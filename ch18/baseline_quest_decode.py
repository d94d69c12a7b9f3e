"""Attention reads the whole paged cache for each token, though few of the pages have nearly all of the weight."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.models.grouped_query import attended
from common.models.merge import merge
from common.python.workload import Cost, Draw, Inputs, Step, Workload

PAGE, SHARE = 16, 16  # tokens of a page; pages for each one that is chosen
HEAVY = 15.0  # a planted key's score with every query of its group: e^15 times a middling key's weight
KEYS, PROGRAMS = 128, 384  # of a tile, eight pages; at once: three on each multiprocessor of an H200, but for a few


def inputs(draw: Draw, requests: int, heads: int, group: int, pages: int, width: int, dtype: str) -> Inputs:
    """Scattered pages and their bounds. Three in 64 have a heavy key; all others together have 0.01% of the weight."""
    element, pool = getattr(torch, dtype), (requests * pages, heads, PAGE, width)
    q, k = draw.normal(requests, heads, group, width), draw.normal(*pool, dtype=element)
    table = draw.permutation(requests * pages).view(requests, pages).int()
    like_all = (q.mT @ torch.linalg.solve(q @ q.mT, q.new_ones(group, 1))).mT  # product 1 with each query
    chosen = draw.uniform(requests, heads, pages).topk(pages // SHARE * 3 // 4).indices
    at = table.long()[:, None].expand(-1, heads, -1).gather(2, chosen), torch.arange(heads, device=q.device)[:, None]
    k[(*at, draw.integers(*chosen.shape, high=PAGE))] += (like_all * HEAVY * width**0.5).to(element)
    own = {"k": k, "v": draw.normal(*pool, dtype=element), "table": table, "low": k.amin(2), "high": k.amax(2)}
    return {"q": q.flatten(1, 2).to(element), **own}


def reference(q: Tensor, k: Tensor, v: Tensor, table: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Attention to the sixteenth of the pages whose bounds, the most that a group's scores can be, are greatest."""
    parts, (heads, _, width), each = [], k.shape[1:], torch.arange(k.shape[1], device=k.device)[:, None]
    for grouped, own in zip(q.view(len(q), heads, -1, width), table.long()):
        least, most = (bound[own].permute(1, 2, 0).double() for bound in (low, high))
        bounds = grouped.clamp(min=0).sum(1, True) @ most + grouped.clamp(max=0).sum(1, True) @ least
        best = own[bounds[:, 0].topk(len(own) // SHARE).indices]
        parts.append(attended(grouped, *(pool[best, each].flatten(1, 2).double() for pool in (k, v))).flatten(0, 1))
    return torch.stack(parts)


def cost(requests: int, heads: int, group: int, pages: int, width: int, dtype: str) -> Cost:
    every = requests * heads * width
    bounds, cache, queries = every * pages, every * (pages // SHARE) * PAGE, every * group
    read = 2 * (2 * bounds + 2 * cache + queries) + 4 * requests * pages  # all bounds, and the chosen pages
    return Cost(read=read, write=2 * queries, items=requests, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One layer of an 8B model, 65,536 tokens: 4.3 GB of cache. float16 as Triton's interpreter has no bf16 dot.
        "bench": {"requests": 16, "heads": 8, "group": 4, "pages": 4096, "width": 128, "dtype": "bfloat16"},
        "test": {"requests": 2, "heads": 2, "group": 5, "pages": 83, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% on average
    as_drawn=("k", "v", "table", "low", "high"),
)


@triton.jit
def attend(
    q, k, v, lists, sums_of, logs_of, heads, group, pages, share, of_request, of_head, scale,
    WIDTH: tl.constexpr, PAGE: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """The attention of a group's queries to one part of a list of pages, and the log of its weights' total (base 2)."""
    part, head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    query, column, both = tl.arange(0, QUERIES), tl.arange(0, WIDTH), request * heads + head
    mask, mine = query[:, None] < group, lists + request * of_request + head * of_head
    turned = tl.load(q + (both * group + query[:, None]) * WIDTH + column[None, :], mask=mask, other=0.0)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    end = tl.minimum(part * share + share, pages) * PAGE
    for start in range(part * share * PAGE, end, KEYS):
        row = start + tl.arange(0, KEYS)
        live = row < end
        page = tl.load(mine + row // PAGE, mask=live, other=0).to(tl.int64)
        at = ((page * heads + head) * PAGE + row % PAGE)[:, None] * WIDTH + column[None, :]
        scores = tl.dot(turned, tl.load(k + at, mask=live[:, None], other=0.0).T) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        loaded = tl.load(v + at, mask=live[:, None], other=0.0)
        sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    slot = (both * tl.num_programs(0) + part) * group + query
    tl.store(sums_of + slot[:, None] * WIDTH + column[None, :], sums / total[:, None], mask=mask)
    tl.store(logs_of + slot, peak + tl.log2(total), mask=query < group)


def attention(q: Tensor, k: Tensor, v: Tensor, lists: Tensor) -> Step:
    """Attention to the pages in lists [requests, heads, pages], as many parts as can run at once."""
    (requests, heads, pages), width, group = lists.shape, k.shape[3], q.shape[1] // lists.shape[1]
    share = triton.cdiv(pages, max(1, PROGRAMS // (requests * heads)) * (KEYS // PAGE)) * (KEYS // PAGE)
    parts, rows, out = triton.cdiv(pages, share), max(16, triton.next_power_of_2(group)), torch.empty_like(q)
    sums, logs = (q.new_empty(requests, heads, parts, group, n, dtype=torch.float32) for n in (width, 1))
    scale = width**-0.5 * 1.4426950408889634  # log2(e): weights are powers of 2
    sizes = heads, group, pages, share, *lists.stride()[:2], scale, width, PAGE, KEYS, rows

    def step() -> Tensor:
        attend[parts, heads, requests](q, k, v, lists, sums, logs, *sizes, num_warps=4, num_stages=2)
        merge[group, requests * heads](sums, logs, out, group, parts, width, triton.next_power_of_2(parts))
        return out

    return step


def prepare(q: Tensor, k: Tensor, v: Tensor, table: Tensor, low: Tensor, high: Tensor) -> Step:
    return attention(q, k, v, table[:, None].expand(-1, k.shape[1], -1))
