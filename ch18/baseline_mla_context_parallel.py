"""Tensor parallelism splits the heads, but all heads share one latent cache: every rank holds and reads all of it."""

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

ROTARY = 64  # numbers at a row's end that carry its position; the latent ones before them are keys and values
KEYS, PARTS = 32, 8  # of a tile; of a request's cache, a program each


def inputs(draw: Draw, requests: int, heads: int, keys: int, latent: int, dtype: str) -> Inputs:
    """A rank's heads, in the latent space already, and the cache, which is the same everywhere."""
    element = getattr(torch, dtype)
    return {
        "q": draw.normal(requests, heads, latent + ROTARY, dtype=element),
        "cache": draw.shared.normal(requests, keys, latent + ROTARY, dtype=element),
    }


def reference(rank: int, q: list[Tensor], cache: list[Tensor]) -> Tensor:
    pairs = zip(q[rank], cache[rank])
    return torch.stack([(a @ b.mT * a.shape[1] ** -0.5).softmax(dim=1) @ b[:, :-ROTARY] for a, b in pairs])


def cost(requests: int, heads: int, keys: int, latent: int, dtype: str) -> Cost:
    """For two ranks: each reads half of the cache, for the heads of both."""
    rows, row = requests * keys, latent + ROTARY
    return Cost(
        read=rows * row + 2 * requests * heads * row,
        write=2 * requests * heads * latent,
        flops=2 * heads * rows * (2 * latent + ROTARY),
        dtype="bf16",
        items=requests,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # DeepSeek-V3's latent cache, and for each rank 16 of its 128 heads
        "bench": {"requests": 32, "heads": 16, "keys": 32768, "latent": 512, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 3, "heads": 5, "keys": 203, "latent": 128, "dtype": "float16"},
    },
    tolerance=2e-2,  # weights and outputs are rounded to bf16
    gpus=2,
)


@triton.jit
def attend(
    q, cache, sums_of, logs_of, heads, keys, stride, share, scale,
    LATENT: tl.constexpr, ROTARY: tl.constexpr, KEYS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """The attention of all heads to a part of a request's cache, and the logarithms of the weights' totals."""
    part, parts, request = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    head, column, turn = tl.arange(0, HEADS), tl.arange(0, LATENT), LATENT + tl.arange(0, ROTARY)
    mask, query, row = head < heads, request * heads + head, LATENT + ROTARY
    mine = tl.load(q + query[:, None] * row + column[None, :], mask=mask[:, None], other=0.0)
    turned = tl.load(q + query[:, None] * row + turn[None, :], mask=mask[:, None], other=0.0)
    sums = tl.zeros((HEADS, LATENT), tl.float32)
    total, peak = tl.zeros((HEADS,), tl.float32), tl.full((HEADS,), float("-inf"), tl.float32)
    for start in range(part * share, tl.minimum(part * share + share, keys), KEYS):
        key = start + tl.arange(0, KEYS)
        live, place = key < keys, cache + (request * stride + key)[:, None] * row
        latent = tl.load(place + column[None, :], mask=live[:, None], other=0.0)
        own = tl.load(place + turn[None, :], mask=live[:, None], other=0.0)
        scores = tl.dot(turned, own.T, tl.dot(mine, latent.T)) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        sums = tl.dot(weights.to(latent.dtype), latent, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    slot = query * parts + part
    tl.store(sums_of + slot[:, None] * LATENT + column[None, :], sums / total[:, None], mask=mask[:, None])
    tl.store(logs_of + slot, (peak + tl.log2(total)) * 0.6931471805599453, mask=mask)


def merged(sums: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """The attention to all keys from that to parts of them (..., parts, latent), and its logarithms."""
    total = logs.logsumexp(-1)
    return ((logs - total[..., None]).exp()[..., None, :] @ sums)[..., 0, :], total


def attention(heads: int, cache: Tensor, warps: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Of queries (requests, heads, ...) to keys (requests, keys, ...), with logarithms; both in float32."""
    requests, keys, row = cache.shape
    share = triton.cdiv(triton.cdiv(keys, PARTS), KEYS) * KEYS
    parts, rows = triton.cdiv(keys, share), max(16, triton.next_power_of_2(heads))
    sums = cache.new_empty(requests, heads, parts, row - ROTARY, dtype=torch.float32)
    logs, scale = torch.empty_like(sums[..., 0]), row**-0.5 * math.log2(math.e)  # weights are powers of 2
    sizes = (heads, keys, cache.stride(0) // row, share, scale, row - ROTARY, ROTARY, KEYS, rows)

    def attended(q: Tensor) -> tuple[Tensor, Tensor]:
        attend[parts, requests](q, cache, sums, logs, *sizes, num_warps=warps, num_stages=3)
        return merged(sums, logs)

    return attended


def prepare(q: Tensor, cache: Tensor) -> Step:
    attended = attention(q.shape[1], cache, warps=4)

    def step() -> Tensor:
        return attended(q)[0].to(q.dtype)

    return step
