"""The greatest of every 64 logits tell which groups can hold the row's 50 greatest: one read, one kernel, no sort."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch16.baseline_topk_topp_sampling import K, P
from ch16.baseline_topk_topp_sampling import workload as workload
from common.python.workload import Step

GROUP = 64  # logits that one maximum stands for
TILE = 256  # groups that a program reads: 32 logits a thread
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
    K: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """For one row: top-k and top-p keep some of its tokens, and of these the greatest with noise wins.

    K groups reach the threshold of the maxima, so K logits do, and none in another group is as great as those.
    """
    group, slot = tl.arange(0, GROUPS), tl.arange(0, ROOM)
    logits, noise = logits + row.to(tl.int64) * vocabulary, noise + row.to(tl.int64) * vocabulary
    home = passed + row * 2 * ROOM
    rank = ranked(tl.load(maxima + row * groups + group, mask=group < groups, other=float("-inf")))
    least = tl.min(tl.where(group < groups, rank, 0x7FFFFFFF), 0)
    least = tl.where(groups < K, -0x7FFFFFFF, least)  # K logits may not reach the least of so few maxima
    low, count = threshold(rank, least, K, ROOM)
    pass_on(rank, group, low, home, ROOM)
    lane = tl.arange(0, ROOM * GROUP)
    group = tl.load(home + lane // GROUP, mask=lane // GROUP < count, other=groups)
    token = group * GROUP + lane % GROUP
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
    logits, noise, maxima, passed, arrived, out, vocabulary, groups, P,
    K: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr, ROOM: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The greatest logit of each group of a row's tile; the row's last program to have them chooses its token."""
    row, group = tl.program_id(1), tl.program_id(0) * TILE + tl.arange(0, TILE)
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    value = tl.load(logits + row.to(tl.int64) * vocabulary + token, mask=token < vocabulary, other=float("-inf"))
    tl.store(maxima + row * groups + group, tl.max(value, 1), mask=group < groups)
    tl.debug_barrier()  # all threads have stored, before one says so
    if tl.atomic_add(arrived + row, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(arrived + row, 0)  # for the next step
        choose(row, logits, noise, maxima, passed, out, vocabulary, groups, P, K, GROUPS, GROUP, ROOM)


def prepare(logits: Tensor, noise: Tensor) -> Step:
    (rows, vocabulary), groups = logits.shape, triton.cdiv(logits.shape[1], GROUP)
    maxima, out = logits.new_empty(rows, groups), logits.new_empty(rows, dtype=torch.int64)
    passed = logits.new_empty(rows, 2, ROOM, dtype=torch.int32)  # groups, and then tokens
    arrived = logits.new_zeros(rows, dtype=torch.int32)
    sizes = {"K": K, "GROUPS": triton.next_power_of_2(groups), "GROUP": GROUP, "ROOM": ROOM, "TILE": TILE}

    def step() -> Tensor:
        grid, buffers = (triton.cdiv(groups, TILE), rows), (maxima, passed, arrived)
        sample[grid](logits, noise, *buffers, out, vocabulary, groups, P, **sizes, num_warps=16, maxnreg=64)
        return out

    return step
