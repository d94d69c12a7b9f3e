"""A program reads a row, and the greatest of every 64 logits tell which groups can hold its 50 greatest: one read."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch16.baseline_topk_topp_sampling import K, P
from ch16.baseline_topk_topp_sampling import workload as workload
from common.python.workload import Step

SIDE = tl.constexpr(8)  # a group is 8 logits side by side, which are a sector of memory, in each of 8 rows of a tile
GROUP = tl.constexpr(64)  # logits that one maximum stands for
TILE = 64  # groups that are read at a time: 32 logits a thread
ROOM = 64  # groups, and then logits, that are passed on: more than K, so that a search may end early


@triton.jit
def ranked(value):
    """Integers in the order of the floats: the bits of a negative one count the other way."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def threshold(rank, low, K: tl.constexpr, ROOM: tl.constexpr):
    """A rank from `low` on that K to ROOM ranks reach, and how many do; where too many are equal, the K-th greatest.

    At least K reach `low`. Integers have 32 bits, so that 32 halvings find the K-th greatest, but few are needed.
    """
    low, high = low.to(tl.int64), tl.max(rank, 0).to(tl.int64)
    count = tl.sum((rank >= low).to(tl.int32), 0)
    while (count > ROOM) & (low < high):
        middle = low + (high - low + 1) // 2
        reached = tl.sum((rank >= middle).to(tl.int32), 0)
        count = tl.where(reached >= K, reached, count)
        low, high = tl.where(reached >= K, middle, low), tl.where(reached >= K, high, middle - 1)
    return low.to(tl.int32), count


@triton.jit
def pass_on(rank, entry, low, home, ROOM: tl.constexpr):
    """Entries whose ranks reach `low` are stored from `home` on, in their order; of equals of `low` the first ROOM."""
    greater, equal = (rank > low).to(tl.int32), (rank == low).to(tl.int32)
    counted = tl.cumsum(greater + (equal << 16), 0)  # both in one scan
    equals, spare = counted >> 16, ROOM - tl.sum(greater, 0)
    place = (counted & 0xFFFF) + tl.minimum(equals, spare) - 1
    tl.store(home + place, entry, mask=(rank > low) | ((rank == low) & (equals <= spare)))
    tl.debug_barrier()  # all threads have stored, before any of them reads


@triton.jit
def choose(
    row, logits, noise, maxima, passed, out, vocabulary, groups, P,
    K: tl.constexpr, GROUPS: tl.constexpr, ROOM: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """For one row: top-k and top-p keep some of its tokens, and of these the greatest with noise wins.

    K groups reach the threshold of the maxima, so K logits do, and none in another group is as great as those.
    """
    group, slot = tl.arange(0, GROUPS), tl.arange(0, ROOM)
    logits, noise = logits + row.to(tl.int64) * vocabulary, noise + row.to(tl.int64) * vocabulary
    home = passed + row * 2 * ROOM
    rank = ranked(tl.load(maxima + row * groups + group, mask=group < groups, other=float("-inf")))
    real = rank > ranked(tl.full((GROUPS,), float("-inf"), tl.float32))  # the last tile may have empty groups
    least = tl.min(tl.where(real, rank, 0x7FFFFFFF), 0)
    least = tl.where(tl.sum(real.to(tl.int32), 0) < K, -0x7FFFFFFF, least)  # K logits may not reach one of so few
    low, count = threshold(rank, least, K, ROOM)
    pass_on(rank, group, low, home, ROOM)
    lane = tl.arange(0, ROOM * GROUP)
    group = tl.load(home + lane // GROUP, mask=lane // GROUP < count, other=groups)
    token = group // TILE * (TILE * GROUP) + lane % GROUP // SIDE * (TILE * SIDE) + group % TILE * SIDE + lane % SIDE
    rank = ranked(tl.load(logits + token, mask=token < vocabulary, other=float("-inf")))
    low, count = threshold(rank, low, K, ROOM)
    pass_on(rank, token, low, home + ROOM, ROOM)
    token = tl.load(home + ROOM + slot, mask=slot < count, other=vocabulary)
    value = tl.load(logits + token, mask=token < vocabulary, other=float("-inf"))
    gumbel = tl.load(noise + token, mask=token < vocabulary, other=0.0)
    mine, other = value[None, :], value[:, None]  # ROOM x ROOM comparisons: which is likelier, or equal and before
    likelier = (other > mine) | ((other == mine) & (slot[:, None] < slot[None, :]))
    kept = tl.sum(likelier.to(tl.int32), 0) < K
    mass = tl.where(kept, tl.exp(value - tl.max(value, 0)), 0.0)
    before = tl.sum(tl.where(likelier, mass[:, None], 0.0), 0)
    kept &= before < P * tl.sum(mass, 0)  # each that is needed to reach P
    winner = tl.argmax(tl.where(kept, value + gumbel, float("-inf")), 0)
    tl.store(out + row, tl.sum(tl.where(slot == winner, token, 0), 0).to(tl.int64))


@triton.jit
def sample(
    logits, noise, maxima, passed, out, vocabulary, groups, P,
    K: tl.constexpr, GROUPS: tl.constexpr, ROOM: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The greatest logit of each group of a row, tile by tile; then its token. Others read meanwhile."""
    row, group = tl.program_id(0), tl.arange(0, TILE)
    within = tl.arange(0, GROUP // SIDE)[:, None] * (TILE * SIDE) + tl.arange(0, TILE * SIDE)[None, :]
    for first in tl.range(0, vocabulary, TILE * GROUP, num_stages=STAGES):
        token = first + within
        value = tl.load(logits + row.to(tl.int64) * vocabulary + token, mask=token < vocabulary, other=float("-inf"))
        greatest = tl.max(tl.reshape(tl.max(value, 0), (TILE, SIDE)), 1)
        tl.store(maxima + row * groups + first // GROUP + group, greatest)
    tl.debug_barrier()  # all threads have stored, before any of them reads
    choose(row, logits, noise, maxima, passed, out, vocabulary, groups, P, K, GROUPS, ROOM, TILE)


def prepare(logits: Tensor, noise: Tensor) -> Step:
    rows, vocabulary = logits.shape
    groups = triton.cdiv(vocabulary, TILE * GROUP.value) * TILE  # of whole tiles: some may be empty
    maxima, out = logits.new_empty(rows, groups), logits.new_empty(rows, dtype=torch.int64)
    passed = logits.new_empty(rows, 2, ROOM, dtype=torch.int32)  # groups, and then tokens
    sizes = {"K": K, "GROUPS": triton.next_power_of_2(groups), "ROOM": ROOM, "TILE": TILE, "STAGES": 4}

    def step() -> Tensor:
        sample[(rows,)](logits, noise, maxima, passed, out, vocabulary, groups, P, **sizes, num_warps=4, maxnreg=128)
        return out

    return step
