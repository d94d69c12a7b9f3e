"""All tokens fit one tile of 16 rows, so each expert with a token multiplies all of them: no sort, no gather."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_moe_decode_gemv import multiply
from ch17.baseline_moe_decode_gemv import workload as workload
from common.models.expert_rows import added
from common.python.workload import Step

TILE = {"N": 32, "K": 128, "num_warps": 4, "num_stages": 3}  # 16 KB of weights a stage for gates, 8 KB for the others


@triton.jit
def of_expert(
    rows, weights, out, ids, places, choices, tokens, outputs, features,
    GATED: tl.constexpr, CHOICES: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """GATED: the tokens' hidden states [experts, tokens, outputs]; else what the expert makes of its own of those."""
    expert, column = tl.program_id(1), tl.program_id(0) * N + tl.arange(0, N)
    row, choice = tl.arange(0, M), tl.arange(0, CHOICES)
    owners = tl.load(ids + choice, mask=choice < choices, other=-1)
    if GATED and tl.program_id(0) + expert == 0:  # where the choices' answers will be
        token = choice * tokens // choices
        tl.store(places + choice, owners * tokens + token, mask=choice < choices)
    if tl.sum((owners == expert).to(tl.int32), 0) > 0:  # else its weights are not read
        weights += expert.to(tl.int64) * (2 if GATED else 1) * outputs * features
        if not GATED:
            rows += expert.to(tl.int64) * tokens * features
        total = multiply(rows, weights, row, tokens, column, outputs, features, GATED, K)
        place = out + (expert.to(tl.int64) * tokens + row[:, None]) * outputs + column[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(row < tokens)[:, None] & (column < outputs)[None, :])


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    (experts, width, wide), tokens = down.shape, len(x)
    hidden, answers = (x.new_empty(experts * tokens, features) for features in (wide, width))
    out, places = torch.empty_like(x), torch.empty_like(ids)
    m, block = triton.next_power_of_2(max(tokens, 16)), triton.next_power_of_2(ids.numel())

    def linear(source: Tensor, weights: Tensor, into: Tensor) -> None:
        features, outputs, gated = source.shape[1], into.shape[1], weights is gate_up
        grid = (triton.cdiv(outputs, TILE["N"]), experts)
        of_expert[grid](
            source, weights, into, ids, places, ids.numel(), tokens, outputs, features, gated, block, m, **TILE
        )  # fmt: skip

    def step() -> Tensor:
        linear(x, gate_up, hidden)
        linear(hidden, down, answers)
        return added(answers, places.view(-1), shares, out)

    return step
