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
GROUP = tl.constexpr(16)  # programs whose counts of an expert, a byte each, lie side by side: a thread's widest load
WARPS = 16  # two tokens each: few enough that all their logits are on their way before the first is looked at
PICKS = tl.constexpr(CHOSEN)
TAKEN = tl.constexpr(-(1 << 31))  # below the key of any logit, -inf too


@triton.jit
def keys(row, expert, experts):
    """Logits as integers of the same order: of a negative float, all bits but the sign turn over."""
    bits = tl.load(row[:, None] + expert, mask=expert < experts, other=float("-inf")).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def ones(x):
    """How many bits of an int32 are 1: sums of 2 bits, of 4, of 8, and then of all."""
    x -= (x >> 1) & 0x55555555
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    return added((x + (x >> 4)) & 0x0F0F0F0F)


@triton.jit
def added(x):
    """The sum of an int32's four bytes."""
    x = (x & 0x00FF00FF) + ((x >> 8) & 0x00FF00FF)
    return (x & 0xFFFF) + (x >> 16)


@triton.jit
def choose(logits, shares, ids, masks, counts, tokens, experts, EXPERTS: tl.constexpr):
    """The largest PICKS logits of each token in turn, and for each expert a mask of the tokens that picked it."""
    tl.static_assert(EXPERTS <= 256 and PICKS <= 8, "a token's ids must fit in the bytes of an int64")
    # Experts e and e + HALF are a pair, and only its higher logit can be the next: half as many to compare.
    HALF: tl.constexpr = EXPERTS // 2
    program, expert = tl.program_id(0), tl.arange(0, HALF)[None, :]
    row = logits + tl.minimum(program * TOKENS + tl.arange(0, TOKENS), tokens - 1) * experts  # past the end: the last
    first, second = keys(row, expert, experts), keys(row, expert + HALF, experts)
    mask_of = masks + program * EXPERTS + tl.arange(0, EXPERTS)
    tl.store(mask_of, tl.zeros((EXPERTS,), tl.int32))
    high, low = tl.maximum(first, second), tl.minimum(first, second)
    holder = tl.where(first >= second, expert, expert + HALF)  # whose is the higher
    picked = tl.zeros((TOKENS,), tl.int64)
    for turn in tl.range(PICKS):  # with static_range, ptxas has the second token's loads wait for the first's turns
        most = tl.max(high, axis=1)  # a warp finds the largest of 32 integers in one instruction
        at = tl.min(tl.where(high == most[:, None], holder, EXPERTS), axis=1)
        taken = holder == at[:, None]
        high, low = tl.where(taken, low, high), tl.where(taken, TAKEN, low)
        holder = tl.where(taken, holder ^ HALF, holder)
        picked |= at.to(tl.int64) << (8 * turn)
    tl.debug_barrier()  # all bits of the masks are 0 before one is set
    choice = tl.arange(0, TOKENS * PICKS)  # from here on a thread has one
    number = program * TOKENS * PICKS + choice
    inside = number < tokens * PICKS
    own = (tl.gather(picked, choice // PICKS, axis=0) >> (8 * (choice % PICKS))).to(tl.int32) & 255
    tl.store(ids + number, own.to(tl.int64), mask=inside)
    tl.atomic_or(masks + program * EXPERTS + own, 1 << (choice // PICKS), mask=inside, sem="relaxed")
    best = tl.load(logits + tl.minimum(number // PICKS, tokens - 1) * experts + own).reshape(TOKENS, PICKS)
    # The softmax's sum over all experts cancels when the chosen are renormalised; their largest is the first.
    weights = tl.exp(best - tl.max(best, axis=1)[:, None])
    tl.store(shares + number, (weights / tl.sum(weights, axis=1)[:, None]).reshape(TOKENS * PICKS), mask=inside)
    tl.debug_barrier()  # all bits are set before they are counted
    times = ones(tl.load(mask_of, cache_modifier=".cg"))  # from the L2 cache, where they were set
    place = (program // GROUP * EXPERTS + tl.arange(0, EXPERTS)) * GROUP + program % GROUP
    tl.store(counts + place, times.to(tl.uint8))


@triton.jit
def place_rows(ids, masks, counts, ends, order, tokens, experts, PROGRAMS: tl.constexpr, EXPERTS: tl.constexpr):
    """The end of each expert's rows, and for this program's choices their places: sorted by expert, tokens in order."""
    program, expert, choice = tl.program_id(0), tl.arange(0, EXPERTS), tl.arange(0, TOKENS * PICKS)
    number = program * TOKENS * PICKS + choice
    own = tl.load(ids + number, mask=number < tokens * PICKS, other=0).to(tl.int32)
    # A thread has an expert. A group's counts of it are four int32, added byte by byte: none passes 4 * TOKENS, 128.
    word, group = tl.arange(0, GROUP // 4)[None, :], program // GROUP
    counts += expert[:, None] * (GROUP // 4) + word
    bits = 8 * tl.minimum(tl.maximum(program % GROUP - 4 * word, 0), 4)  # of its own group, the programs before it
    words = tl.load(counts + group * EXPERTS * (GROUP // 4)) & ((1 << bits.to(tl.int64)) - 1).to(tl.int32)
    total, before = tl.zeros((EXPERTS,), tl.int32), added(tl.sum(words, axis=1))
    for other in range(tl.cdiv(PROGRAMS, GROUP)):
        times = added(tl.sum(tl.load(counts + other * EXPERTS * (GROUP // 4)), axis=1))
        total += times
        before += tl.where(other < group, times, 0)
    mask = tl.load(masks + program * EXPERTS + own)  # not before, or all loads of counts would wait for that of ids
    end = tl.cumsum(total, 0)
    tl.store(ends + expert, end.to(tl.int64), mask=(expert < experts) & (program == 0))
    # A choice's place: the rows of lower experts, of earlier programs, and of earlier tokens in this one.
    start = tl.gather(end - total + before, own, axis=0)
    earlier = ones(mask & ((1 << (choice // PICKS)) - 1))
    tl.store(order + start + earlier, number.to(tl.int64), mask=number < tokens * PICKS)


def prepare(logits: Tensor) -> Step:
    tokens, experts = logits.shape
    programs, block = triton.cdiv(tokens, TOKENS.value), triton.next_power_of_2(experts)
    shares = logits.new_empty(tokens, CHOSEN)
    ids, order = (logits.new_empty(tokens, CHOSEN, dtype=torch.int64) for _ in range(2))
    ends = logits.new_empty(experts, dtype=torch.int64)
    masks = logits.new_empty(programs, block, dtype=torch.int32)
    counts = logits.new_zeros(triton.cdiv(programs, GROUP.value), block, GROUP.value, dtype=torch.uint8)
    words = counts.view(torch.int32)  # in the last group, the counts of no program stay 0

    def step() -> tuple[Tensor, ...]:
        choose[(programs,)](logits, shares, ids, masks, counts, tokens, experts, block, num_warps=WARPS)
        place_rows[(programs,)](ids, masks, words, ends, order, tokens, experts, programs, block, num_warps=8)
        return shares, ids, ends, order.view(-1)

    return step
