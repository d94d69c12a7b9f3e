"""MXFP4 experts are expanded to fp16 when the model is loaded, and each decode step reads two bytes a weight."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from common.models.expert_rows import added
from common.models.formats import decoded, metered, scales
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

GROUP = 32  # features that share an exponent
TILE = {"CHOICES": 64, "N": 64, "K": 128, "num_warps": 4, "num_stages": 4}  # at most 64 choices
Packed = tuple[Tensor, Tensor]  # codes [experts, outputs, features / 2], exponents [experts, outputs, features / 32]


def drawn(draw: Draw, *shape: int, features: int) -> Packed:
    codes = draw.integers(
        *shape, features // 2, high=256, dtype=torch.uint8
    )  # two a byte, the even one in the low bits
    return codes, draw.integers(*shape, features // GROUP, low=118, high=121, dtype=torch.uint8)


def inputs(draw: Draw, tokens: int, experts: int, top: int, busy: int, width: int, wide: int) -> Inputs:
    """`busy` of the experts have tokens, as many at any draw (21 at random), so that the bytes are known."""
    scores = draw.uniform(tokens, busy)
    owned = torch.arange(busy, device=scores.device) % tokens == torch.arange(tokens, device=scores.device)[:, None]
    return {
        "x": draw.normal(tokens, width, dtype=torch.float16),
        "ids": draw.permutation(experts)[(scores + owned).topk(top, dim=1).indices],  # each has at least its owner
        "shares": draw.normal(tokens, top).softmax(dim=1).half(),
        "gate_up": drawn(draw, experts, 2 * wide, features=width),
        "down": drawn(draw, experts, width, features=wide),
    }


def nibbles(codes: Tensor) -> Tensor:
    return torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)


def expanded(codes: Tensor, exponents: Tensor, dtype: torch.dtype) -> Tensor:
    return decoded(nibbles(codes), "e2m1", dtype) * scales(exponents, dtype).repeat_interleave(GROUP, -1)


def reference(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Packed, down: Packed) -> Tensor:
    out = torch.zeros_like(x)
    for token, choice in torch.ones_like(ids).nonzero().tolist():
        expert = ids[token, choice]
        first, second = (expanded(part[0][expert], part[1][expert], x.dtype) for part in (gate_up, down))
        gate, up = (first @ x[token]).chunk(2)
        out[token] += shares[token, choice] * (second @ (F.silu(gate) * up))
    return out


def cost(tokens: int, experts: int, top: int, busy: int, width: int, wide: int) -> Cost:
    weights = 3 * busy * wide * width  # of the active experts; an id of 8 bytes and a share of 2 for each choice
    read, flops = weights // 2 + weights // GROUP + 2 * tokens * width + 10 * tokens * top, 6 * tokens * wide * width
    return Cost(read=read, write=2 * tokens * width, flops=top * flops, dtype="fp16", items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"tokens": 8, "experts": 32, "top": 4, "busy": 22, "width": 2880, "wide": 2880},
        "test": {"tokens": 5, "experts": 5, "top": 2, "busy": 4, "width": 160, "wide": 96},
    },
    tolerance=4e-3,  # fp16 rounds hidden states, products and sums
    frozen=("gate_up", "down"),
)


@triton.jit
def multiply_expert(
    rows, weights, out, ids, choices, tokens, outputs, features, own,
    CHOICES: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    expert, column = tl.program_id(1).to(tl.int64), tl.program_id(0) * N + tl.arange(0, N)
    row, choice = tl.arange(0, 16)[:, None], tl.arange(0, CHOICES)
    if tl.sum((tl.load(ids + choice, choice < choices, -1) == expert).to(tl.int32), 0) > 0:  # else nothing is read
        total = tl.zeros((16, N), tl.float32)
        for first in range(0, features, K):
            at = first + tl.arange(0, K)
            left = rows + (expert * own + row) * features + at[None, :]
            right = weights + (expert * outputs + column[None, :]) * features + at[:, None]
            a = tl.load(left, (row < tokens) & (at < features)[None, :], 0.0)
            total = tl.dot(a, tl.load(right, (column < outputs)[None, :] & (at < features)[:, None], 0.0), total)
        place = out + (expert * tokens + row) * outputs + column[None, :]
        tl.store(place, total, (row < tokens) & (column < outputs)[None, :])


def layer(x: Tensor, ids: Tensor, shares: Tensor, down: Packed, multiply: Callable[[Tensor, Tensor], None]) -> Metered:
    """`multiply(rows, into)` writes what each expert with a token makes of x, or of its own hidden states."""
    experts, width, wide = len(down[0]), x.shape[1], 2 * down[0].shape[2]
    both, answers = (x.new_empty(experts * len(x), features) for features in (2 * wide, width))
    out, places, numbers = torch.empty_like(x), torch.empty_like(ids), torch.arange(len(x), device=x.device)[:, None]

    def step() -> Tensor:
        multiply(x, both)
        gate, up = both.chunk(2, dim=1)
        multiply(F.silu(gate) * up, answers)
        torch.add(numbers, ids, alpha=len(x), out=places)
        return added(answers, places.view(-1), shares, out)

    return metered(step, "e2m1", GROUP)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Packed, down: Packed) -> Metered:
    wide = [torch.stack([expanded(*expert, x.dtype) for expert in zip(*part)]) for part in (down, gate_up)]

    def multiply(rows: Tensor, into: Tensor) -> None:
        experts, outputs, features = (weights := wide[rows is x]).shape
        shape = ids.numel(), len(x), outputs, features, 0 if rows is x else len(x)
        multiply_expert[(triton.cdiv(outputs, TILE["N"]), experts)](rows, weights, into, ids, *shape, **TILE)

    return layer(x, ids, shares, down, multiply)
