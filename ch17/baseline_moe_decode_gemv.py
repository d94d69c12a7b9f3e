"""A grouped product tuned for prefill: each expert's one or two tokens are padded to a tile of 128 rows."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from common.models.expert_rows import added, spread
from common.python.workload import Cost, Draw, Inputs, Step, Workload

TILE = {"M": 128, "N": 64, "K": 64, "num_warps": 8, "num_stages": 3}


def inputs(draw: Draw, tokens: int, experts: int, top: int, busy: int, width: int, wide: int, dtype: str) -> Inputs:
    """A decode batch: `busy` of the experts have tokens, as many at any draw, so that the bytes are known."""
    element = getattr(torch, dtype)
    scores = draw.uniform(tokens, busy)
    owned = torch.arange(busy, device=scores.device) % tokens == torch.arange(tokens, device=scores.device)[:, None]
    ids = draw.permutation(experts)[(scores + owned).topk(top, dim=1).indices]  # each expert has at least its owner
    return {
        "x": draw.normal(tokens, width, dtype=element),
        "ids": ids,
        "shares": draw.normal(tokens, top).softmax(dim=1).to(element),
        "gate_up": draw.normal(experts, 2 * wide, width, std=width**-0.5, dtype=element),
        "down": draw.normal(experts, width, wide, std=wide**-0.5, dtype=element),
    }


def reference(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for token, (own, weights) in enumerate(zip(ids.tolist(), shares)):
        for expert, share in zip(own, weights):
            gate, up = (gate_up[expert].to(x.dtype) @ x[token]).chunk(2)
            out[token] += share * (down[expert].to(x.dtype) @ (F.silu(gate) * up))
    return out


def cost(tokens: int, experts: int, top: int, busy: int, width: int, wide: int, dtype: str) -> Cost:
    # the active experts' weights and the tokens; an id of 8 bytes and a share of 2 for each choice
    read, flops = 2 * (3 * busy * wide * width + tokens * width) + 10 * tokens * top, 6 * tokens * wide * width
    return Cost(read=read, write=2 * tokens * width, flops=top * flops, dtype="bf16", items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A layer of Qwen3-235B, half of its 128 experts, as on one GPU of two, and so half of a token's eight choices.
        # Of 64 experts a random routing would reach 41: 1.5 GB of weights.
        "bench": {"tokens": 16, "experts": 64, "top": 4, "busy": 41, "width": 4096, "wide": 1536, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"tokens": 5, "experts": 13, "top": 3, "busy": 7, "width": 72, "wide": 88, "dtype": "float16"},
    },
    tolerance=0.015,  # bf16 rounds hidden states, products and sums: 0.5% together
    frozen=("gate_up", "down"),
    as_drawn=("gate_up", "down"),
)


@triton.jit
def multiply(rows, weights, row, last, column, outputs, features, GATED: tl.constexpr, K: tl.constexpr):
    """Rows times weights [outputs, features]; GATED, [2 x outputs, features]: gates, and the values that they pass."""
    left, right = rows + row[:, None].to(tl.int64) * features, weights + column[None, :].to(tl.int64) * features
    total = tl.zeros((row.shape[0], column.shape[0]), tl.float32)
    passed = total
    for first in range(0, features, K):
        at = first + tl.arange(0, K)
        inside = (column < outputs)[None, :] & (at < features)[:, None]
        a = tl.load(left + at[None, :], mask=(row < last)[:, None] & (at < features)[None, :], other=0.0)
        total = tl.dot(a, tl.load(right + at[:, None], mask=inside, other=0.0), total)
        if GATED:
            up = tl.load(right + outputs.to(tl.int64) * features + at[:, None], mask=inside, other=0.0)
            passed = tl.dot(a, up, passed)
    return total * tl.sigmoid(total) * passed if GATED else total


@triton.jit
def of_tile(
    rows, weights, out, owners, experts, last, outputs, features,
    GATED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    expert = tl.load(owners + tl.program_id(0)).to(tl.int64)
    if expert < experts:  # the tile has rows
        weights += expert * (2 if GATED else 1) * outputs * features
        total = multiply(rows, weights, row, last, column, outputs, features, GATED, K)
        place = out + row[:, None].to(tl.int64) * outputs + column[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(column < outputs)[None, :])


def in_tiles(tile: dict[str, int], x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    (experts, width, wide), m = down.shape, tile["M"]
    tiles = ids.numel() // m + min(ids.numel(), experts)  # enough for any routing
    first_rows, each = torch.arange(tiles, device=x.device) * m, torch.arange(experts, device=x.device)
    rows, hidden, answers = (x.new_zeros(tiles * m, features) for features in (width, wide, width))
    out = torch.empty_like(x)

    def linear(source: Tensor, weights: Tensor, into: Tensor, owners: Tensor) -> None:
        (count, features), outputs, gated = source.shape, into.shape[1], weights is gate_up
        grid = (tiles, triton.cdiv(outputs, tile["N"]))
        of_tile[grid](source, weights, into, owners, experts, count, outputs, features, gated, **tile)

    def step() -> Tensor:
        hits = ids.view(-1, 1) == each
        room = (hits.sum(0) + m - 1) // m * m
        tops = room.cumsum(0)
        places = (tops - room - 1 + hits.cumsum(0)).gather(1, ids.view(-1, 1)).flatten()
        owners = torch.searchsorted(tops, first_rows, right=True)
        linear(spread(x, places, rows), gate_up, hidden, owners)
        linear(hidden, down, answers, owners)
        return added(answers, places, shares, out)

    return step


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    return in_tiles(TILE, x, ids, shares, gate_up, down)
