"""Two kernels: one picks and counts a few tokens' experts in registers, one turns all counts into every row's place."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_moe_gate_fused import CHOSEN
from ch17.baseline_moe_gate_fused import workload as workload
from common.python.workload import Step

TOKENS = 16  # a program: 256 programs for 4096 tokens, so that each SM of an H200 has two


@triton.jit
def choose(
    logits,
    shares,
    ids,
    counts,
    tokens,
    experts,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    CHOSEN: tl.constexpr,
):
    """The largest CHOSEN logits of each token in turn, and how often each expert is among them in this program."""
    token, expert = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS), tl.arange(0, EXPERTS)
    row = logits + tl.minimum(token, tokens - 1)[:, None] * experts  # beyond the last token, the last one again
    left = tl.load(row + expert[None, :], mask=(expert < experts)[None, :], other=float("-inf"))
    slot = tl.arange(0, CHOSEN)[None, :]
    best, id_of = tl.zeros((TOKENS, CHOSEN), tl.float32), tl.zeros((TOKENS, CHOSEN), tl.int32)
    for turn in tl.static_range(CHOSEN):
        most, at = tl.max(left, axis=1, return_indices=True)
        best = tl.where(slot == turn, most[:, None], best)
        id_of = tl.where(slot == turn, at[:, None], id_of)
        left = tl.where(expert[None, :] == at[:, None], float("-inf"), left)
    # The softmax's sum over all experts cancels when the chosen are renormalised; their largest is the first.
    weights = tl.exp(best - tl.max(best, axis=1)[:, None])
    place, inside = token[:, None] * CHOSEN + slot, (token < tokens)[:, None]
    tl.store(shares + place, weights / tl.sum(weights, axis=1)[:, None], mask=inside)
    tl.store(ids + place, id_of.to(tl.int64), mask=inside)
    picked = inside & (expert < experts)[None, :] & (left == float("-inf"))
    times = tl.sum(picked.to(tl.int32), axis=0)
    tl.store(counts + tl.program_id(0) * EXPERTS + expert, times.to(tl.uint8))


@triton.jit
def place_rows(
    ids,
    counts,
    ends,
    order,
    tokens,
    experts,
    programs,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    CHOSEN: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The end of each expert's rows, and for this program's choices their places: sorted by expert, tokens in order."""
    program, expert = tl.program_id(0), tl.arange(0, EXPERTS)
    total, before = tl.zeros((EXPERTS,), tl.int32), tl.zeros((EXPERTS,), tl.int32)
    for first in range(0, programs, CHUNK):
        other = first + tl.arange(0, CHUNK)[:, None]
        times = tl.load(counts + other * EXPERTS + expert[None, :], mask=other < programs, other=0).to(tl.int32)
        total += tl.sum(times, axis=0)
        before += tl.sum(tl.where(other < program, times, 0), axis=0)
    end = tl.cumsum(total, 0)
    if program == 0:
        tl.store(ends + expert, end.to(tl.int64), mask=expert < experts)
    CHOICES: tl.constexpr = TOKENS * CHOSEN
    choice = tl.arange(0, CHOICES)
    number = program * CHOICES + choice
    own = tl.load(ids + number, mask=number < tokens * CHOSEN, other=-1).to(tl.int32)
    # A choice's place: the rows of lower experts, of earlier programs, and of earlier choices in this one.
    start = tl.gather(end - total + before, tl.maximum(own, 0), axis=0)
    same = tl.load(ids + number[None, :], mask=number[None, :] < tokens * CHOSEN, other=-1).to(tl.int32) == own[:, None]
    earlier = tl.sum((same & (choice[None, :] < choice[:, None])).to(tl.int32), axis=1)
    tl.store(order + start + earlier, number.to(tl.int64), mask=number < tokens * CHOSEN)


def prepare(logits: Tensor) -> Step:
    tokens, experts = logits.shape
    programs, block = triton.cdiv(tokens, TOKENS), triton.next_power_of_2(experts)
    shares = logits.new_empty(tokens, CHOSEN)
    ids, ends, order = (
        torch.empty(shape, dtype=torch.int64, device=logits.device)
        for shape in ((tokens, CHOSEN), experts, tokens * CHOSEN)
    )
    counts = torch.empty(programs, block, dtype=torch.uint8, device=logits.device)  # at most TOKENS
    sides = {"TOKENS": TOKENS, "EXPERTS": block, "CHOSEN": CHOSEN}

    def step() -> tuple[Tensor, ...]:
        choose[(programs,)](logits, shares, ids, counts, tokens, experts, **sides, num_warps=4)
        place_rows[(programs,)](ids, counts, ends, order, tokens, experts, programs, **sides, CHUNK=16, num_warps=8)
        return shares, ids, ends, order

    return step
