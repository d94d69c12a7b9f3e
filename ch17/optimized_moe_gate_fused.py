"""Two kernels: one picks experts and notes in a mask which tokens picked each, one turns the masks into places."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_moe_gate_fused import CHOSEN
from ch17.baseline_moe_gate_fused import workload as workload
from common.python.workload import Step

# A program's, a bit of an int32 for each: 128 programs for 4096 tokens, so that nearly every SM of an H200 has one.
TOKENS = tl.constexpr(32)
CHUNK = tl.constexpr(128)  # programs whose counts are on their way together
WARPS = 8  # four tokens each
PICKS = tl.constexpr(CHOSEN)
TAKEN = tl.constexpr(-(1 << 31))  # below the key of any logit, -inf too


@triton.jit
def flip(bits):
    """A float's bits as an integer of the same order: of a negative number, all but the sign turn over."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def ones(x):
    """How many bits of an int32 are 1: sums of 2 bits, of 4, of 8, and then of all."""
    x -= (x >> 1) & 0x55555555
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    x += x >> 8
    return (x + (x >> 16)) & 63


@triton.jit
def choose(logits, shares, ids, masks, counts, tokens, experts, EXPERTS: tl.constexpr):
    """The largest PICKS logits of each token in turn, and for each expert a mask of the tokens that picked it."""
    tl.static_assert(EXPERTS <= 256 and PICKS <= 8, "a token's ids must fit in the bytes of an int64")
    # Experts in rows of 128, for then a warp has whole tokens, four logits a thread and row, and waits for no other.
    ACROSS: tl.constexpr = min(EXPERTS, 128)
    expert = tl.arange(0, EXPERTS // ACROSS)[None, :, None] * ACROSS + tl.arange(0, ACROSS)[None, None, :]
    here, slot = tl.arange(0, TOKENS), tl.arange(0, PICKS)[None, :]
    token = tl.program_id(0) * TOKENS + here
    row = logits + tl.minimum(token, tokens - 1) * experts  # beyond the last token, the last one again
    left = tl.load(row[:, None, None] + expert, mask=expert < experts, other=float("-inf"))
    left = flip(left.to(tl.int32, bitcast=True))  # a warp finds the largest of 32 integers in one instruction
    picked = tl.zeros((TOKENS,), tl.int64)
    for turn in tl.static_range(PICKS):
        most = tl.max(tl.max(left, axis=1), axis=1)
        at = tl.min(tl.min(tl.where(left == most[:, None, None], expert, EXPERTS), axis=1), axis=1)
        left = tl.where(expert == at[:, None, None], TAKEN, left)
        picked |= at.to(tl.int64) << (8 * turn)
    id_of = (picked[:, None] >> (8 * slot)) & 255
    best = tl.load(row[:, None] + id_of)
    # The softmax's sum over all experts cancels when the chosen are renormalised; their largest is the first.
    weights = tl.exp(best - tl.max(best, axis=1)[:, None])
    place, inside = token[:, None] * PICKS + slot, (token < tokens)[:, None]
    tl.store(shares + place, weights / tl.sum(weights, axis=1)[:, None], mask=inside)
    tl.store(ids + place, id_of, mask=inside)
    bit = tl.where(token < tokens, 1 << here, 0)[:, None, None]
    mask, place = tl.sum(tl.where(left == TAKEN, bit, 0), axis=0, keep_dims=True), tl.program_id(0) * EXPERTS + expert
    tl.store(masks + place, mask)
    tl.store(counts + place, ones(mask).to(tl.uint8))


@triton.jit
def place_rows(ids, masks, counts, ends, order, tokens, experts, programs, EXPERTS: tl.constexpr):
    """The end of each expert's rows, and for this program's choices their places: sorted by expert, tokens in order."""
    program, expert, choice = tl.program_id(0), tl.arange(0, EXPERTS), tl.arange(0, TOKENS * PICKS)
    number = program * TOKENS * PICKS + choice
    own = tl.load(ids + number, mask=number < tokens * PICKS, other=0).to(tl.int32)
    mask = tl.load(masks + program * EXPERTS + own)
    total, before = tl.zeros((EXPERTS,), tl.int32), tl.zeros((EXPERTS,), tl.int32)
    for first in range(0, programs, CHUNK):
        chunk = counts + first * EXPERTS + expert
        for other in tl.static_range(CHUNK):  # a thread has an expert: it adds up alone
            times = tl.load(chunk + other * EXPERTS).to(tl.int32)
            total += times
            before += tl.where(first + other < program, times, 0)
    end = tl.cumsum(total, 0)
    if program == 0:
        tl.store(ends + expert, end.to(tl.int64), mask=expert < experts)
    # A choice's place: the rows of lower experts, of earlier programs, and of earlier tokens in this one.
    start = tl.gather(end - total + before, own, axis=0)
    earlier = ones(mask & ((1 << (choice // PICKS)) - 1))
    tl.store(order + start + earlier, number.to(tl.int64), mask=number < tokens * PICKS)


def prepare(logits: Tensor) -> Step:
    tokens, experts = logits.shape
    programs, block = triton.cdiv(tokens, TOKENS.value), triton.next_power_of_2(experts)
    shares = logits.new_empty(tokens, CHOSEN)
    ids, order = (torch.empty(tokens, CHOSEN, dtype=torch.int64, device=logits.device) for _ in range(2))
    ends = torch.empty(experts, dtype=torch.int64, device=logits.device)
    masks = torch.empty(programs, block, dtype=torch.int32, device=logits.device)
    rows = triton.cdiv(programs, CHUNK.value) * CHUNK.value  # those of no program stay 0
    counts = torch.zeros(rows, block, dtype=torch.uint8, device=logits.device)  # at most TOKENS

    def step() -> tuple[Tensor, ...]:
        choose[(programs,)](logits, shares, ids, masks, counts, tokens, experts, block, num_warps=WARPS)
        place_rows[(programs,)](ids, masks, counts, ends, order, tokens, experts, programs, block, num_warps=8)
        return shares, ids, ends, order.view(-1)

    return step
