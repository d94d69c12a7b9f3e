"""Each choice's row is copied to its expert's rows, multiplied, copied back to its token, and then added up."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

TILE = {"M": 128, "N": 128, "K": 64, "num_warps": 8, "num_stages": 3}


def inputs(draw: Draw, tokens: int, experts: int, chosen: int, width: int, wide: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    scores = draw.normal(tokens, experts) + draw.normal(experts, std=0.5)  # some experts are popular
    best, ids = scores.topk(chosen, dim=1)
    return {
        "x": draw.normal(tokens, width, dtype=element),
        "ids": ids,
        "shares": best.softmax(dim=1).to(element),
        "gate_up": draw.normal(experts, 2 * wide, width, std=width**-0.5, dtype=element),
        "down": draw.normal(experts, width, wide, std=wide**-0.5, dtype=element),
    }


def reference(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for expert in range(len(down)):
        token, slot = torch.where(ids == expert)
        gate, up = (x[token] @ gate_up[expert].T).chunk(2, dim=1)
        out.index_add_(0, token, (F.silu(gate) * up) @ down[expert].T * shares[token, slot, None])
    return out


def cost(tokens: int, experts: int, chosen: int, width: int, wide: int, dtype: str) -> Cost:
    read, flops = 2 * (3 * experts * wide + tokens) * width + 10 * tokens * chosen, 6 * tokens * chosen * wide * width
    return Cost(read=read, write=2 * tokens * width, flops=flops, dtype="bf16", items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A layer of Qwen3-30B-A3B: 1.2 GB of weights; the rows of all choices are 537 MB.
        "bench": {"tokens": 16384, "experts": 128, "chosen": 8, "width": 2048, "wide": 768, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"tokens": 37, "experts": 5, "chosen": 2, "width": 72, "wide": 88, "dtype": "float16"},
    },
    tolerance=0.015,  # bf16 rounds hidden states, products, shares and sums: 0.5% together
    frozen=("gate_up", "down"),
)


@triton.jit
def of_tile(
    rows, index, weights, out, owners, experts, outputs, features,
    GATED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """M rows, those that `index` names where it is given, times their expert's weights; GATED, N / 2 gated values."""
    WIDE: tl.constexpr = N // 2 if GATED else N
    expert = tl.load(owners + tl.program_id(1)).to(tl.int64)
    if expert < experts:  # the tile has rows
        row, column = tl.program_id(1).to(tl.int64) * M + tl.arange(0, M), tl.program_id(0) * WIDE + tl.arange(0, WIDE)
        source = row if index is None else tl.load(index + row)
        left = rows + source[:, None] * features
        right = weights + (expert * (2 if GATED else 1) * outputs + column[None, :]) * features
        total, passed = tl.zeros((M, WIDE), tl.float32), tl.zeros((M, WIDE), tl.float32)
        for first in range(0, features, K):
            at = first + tl.arange(0, K)
            inside = (column < outputs)[None, :] & (at < features)[:, None]
            a = tl.load(left + at[None, :], mask=(at < features)[None, :], other=0.0)
            total = tl.dot(a, tl.load(right + at[:, None], mask=inside, other=0.0), total)
            if GATED:
                up = tl.load(right + outputs.to(tl.int64) * features + at[:, None], mask=inside, other=0.0)
                passed = tl.dot(a, up, passed)
        total = total * tl.sigmoid(total) * passed if GATED else total
        place = out + row[:, None] * outputs + column[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(column < outputs)[None, :])


def linear(rows: Tensor, index: Tensor | None, weights: Tensor, out: Tensor, owners: Tensor) -> None:
    outputs, features, gated = out.shape[1], rows.shape[1], weights.shape[1] == 2 * out.shape[1]
    grid = (triton.cdiv(outputs, TILE["N"] // (1 + gated)), len(owners))
    of_tile[grid](rows, index, weights, out, owners, len(weights), outputs, features, gated, **TILE)


def planned(ids: Tensor, experts: int) -> Callable[[], tuple[Tensor, ...]]:
    """To be called for the token of each row, the row of each choice, and the expert of each tile of rows."""
    m, each = TILE["M"], torch.arange(experts, dtype=torch.int16, device=ids.device)
    first = torch.arange(ids.numel() // m + experts, device=ids.device) * m  # enough tiles for any routing
    index, numbers = ids.new_zeros(len(first) * m), torch.arange(ids.numel(), device=ids.device)

    def plan() -> tuple[Tensor, ...]:
        ordered, order = ids.flatten().to(torch.int16).sort(stable=True)
        ends = torch.searchsorted(ordered, each, right=True)
        room = ((counts := ends.diff(prepend=ends.new_zeros(1))) + m - 1) // m * m
        tops = room.cumsum(0)
        to = numbers + (tops - room - ends + counts)[ordered.int()]
        index[to] = order // ids.shape[1]
        return index, torch.empty_like(order).index_copy_(0, order, to), torch.searchsorted(tops, first, right=True)

    return plan


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    plan, (experts, width, wide) = planned(ids, len(down)), down.shape
    room = (ids.numel() // TILE["M"] + experts) * TILE["M"]
    rows, hidden, answers = (x.new_empty(room, features) for features in (width, wide, width))

    def step() -> Tensor:
        index, places, owners = plan()
        linear(torch.index_select(x, 0, index, out=rows), None, gate_up, hidden, owners)
        linear(hidden, None, down, answers, owners)
        return torch.bmm(shares[:, None], answers[places].view(*ids.shape, width))[:, 0]

    return step
