"""Bisection counts the logits above a threshold in registers until K remain: one read of memory, and no sort."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch16.baseline_topk_topp_sampling import K, P
from ch16.baseline_topk_topp_sampling import workload as workload
from common.python.workload import Step

TILE = 8192  # logits that a program holds in registers: 32 a thread
ROOM = 64  # candidates that a tile may pass on: K, and some equals of the last


@triton.jit
def ranked(value):
    """Integers in the order of the floats: the bits of a negative one count the other way."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def kth_largest(rank, K: tl.constexpr):
    """The greatest threshold that at least K ranks reach; of 2^32 values, 32 halvings find it."""
    low, high = tl.full((), -2147483648, tl.int64), tl.full((), 2147483647, tl.int64)
    for _ in range(32):
        middle = low + (high - low + 1) // 2
        enough = tl.sum((rank >= middle.to(tl.int32)).to(tl.int32)) >= K
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle - 1)
    return low.to(tl.int32)


@triton.jit
def find_candidates(
    logits, values, tokens, counts, vocabulary, K: tl.constexpr, TILE: tl.constexpr, ROOM: tl.constexpr
):
    """The K greatest logits of a row's tile, in no order: none else can be among the row's K greatest."""
    row, tile = tl.program_id(0), tl.program_id(1)
    token = tile * TILE + tl.arange(0, TILE)
    value = tl.load(logits + row.to(tl.int64) * vocabulary + token, mask=token < vocabulary, other=float("-inf"))
    rank = ranked(value)
    found = (rank >= kth_largest(rank, K)) & (value > float("-inf"))
    place = tl.cumsum(found.to(tl.int32), 0) - 1
    home = (row * tl.num_programs(1) + tile) * ROOM + place
    tl.store(values + home, value, mask=found & (place < ROOM))
    tl.store(tokens + home, token, mask=found & (place < ROOM))
    tl.store(counts + row * tl.num_programs(1) + tile, tl.minimum(tl.sum(found.to(tl.int32)), ROOM))


@triton.jit
def choose(
    values, tokens, counts, noise, out, vocabulary, tiles, P, K: tl.constexpr, TILES: tl.constexpr, ROOM: tl.constexpr
):
    """One program for a row: of its candidates top-k and top-p keep some, and of these the greatest with noise wins."""
    row, lane = tl.program_id(0), tl.arange(0, TILES * ROOM)
    tile = lane // ROOM
    held = (tile < tiles) & (lane % ROOM < tl.load(counts + row * tiles + tile, mask=tile < tiles, other=0))
    value = tl.load(values + row * tiles * ROOM + lane, mask=held, other=float("-inf"))
    token = tl.load(tokens + row * tiles * ROOM + lane, mask=held, other=0)
    rank = ranked(value)
    kept = held & (rank >= kth_largest(rank, K))
    mass = tl.where(kept, tl.exp(value - tl.max(value)), 0.0)
    enough = P * tl.sum(mass)
    low, high = tl.full((), -2147483648, tl.int64), tl.full((), 2147483647, tl.int64)
    for _ in range(32):  # the least threshold above which less than P lies: all from there on are needed to reach P
        middle = low + (high - low) // 2
        little = tl.sum(tl.where(rank > middle.to(tl.int32), mass, 0.0)) < enough
        low, high = tl.where(little, low, middle + 1), tl.where(little, middle, high)
    kept &= rank >= low.to(tl.int32)
    gumbel = tl.load(noise + row.to(tl.int64) * vocabulary + token, mask=kept, other=0.0)
    winner = tl.argmax(tl.where(kept, value + gumbel, float("-inf")), 0)
    tl.store(out + row, tl.sum(tl.where(lane == winner, token, 0)).to(tl.int64))


def prepare(logits: Tensor, noise: Tensor) -> Step:
    (rows, vocabulary), tiles = logits.shape, triton.cdiv(logits.shape[1], TILE)
    values, tokens = logits.new_empty(rows, tiles, ROOM), logits.new_empty(rows, tiles, ROOM, dtype=torch.int32)
    counts, out = tokens.new_empty(rows, tiles), tokens.new_empty(rows, dtype=torch.int64)

    def step() -> Tensor:
        find_candidates[rows, tiles](logits, values, tokens, counts, vocabulary, K, TILE, ROOM, num_warps=8)
        sizes = {"K": K, "TILES": triton.next_power_of_2(tiles), "ROOM": ROOM}
        choose[(rows,)](values, tokens, counts, noise, out, vocabulary, tiles, P, **sizes, num_warps=4)
        return out

    return step
