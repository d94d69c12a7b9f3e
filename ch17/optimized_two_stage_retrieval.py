"""A scan of 8-bit codes keeps the best score of every 16 vectors; all bits are read of the best 64 groups alone."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_two_stage_retrieval import SCALE, TOP
from ch17.baseline_two_stage_retrieval import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=40)
GROUP = 16  # vectors that one maximum stands for
KEPT = 2 * TOP  # groups: score 64 is below score 32 by 12 times what the rounding of codes does (rms)
JOINED = 4  # tiles that share a maximum
SCAN = {"N": 128, "K": 128, "num_warps": 4, "num_stages": 4}


@triton.jit
def code(queries, codes, numbers, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """Multiples of 1 / SCALE, to nearest even, of 8 bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(queries + at, mask=at < numbers, other=0.0).to(tl.float32) * SCALE
    whole = tl.floor(value + 0.5)
    whole = tl.where((whole - value == 0.5) & (whole.to(tl.int32) % 2 != 0), whole - 1, whole)
    tl.store(codes + at, tl.clamp(whole, -127.0, 127.0).to(tl.int8), mask=at < numbers)


@triton.jit
def scan(
    queries, codes, maxima, tops, count, vectors, width, groups, unit,
    GROUP: tl.constexpr, Q: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The products of N vectors' codes with those of all queries, and the largest of each group."""
    query, vector = tl.arange(0, Q)[:, None], tl.program_id(0) * N + tl.arange(0, N)[None, :]
    right, total = codes + vector.to(tl.int64) * width, tl.zeros((Q, N), tl.int32)
    for first in range(0, width, K):
        at = first + tl.arange(0, K)
        left = tl.load(queries + query * width + at[None, :], mask=(query < count) & (at < width)[None, :], other=0)
        values = tl.load(right + at[:, None], mask=(vector < vectors) & (at < width)[:, None], other=0)
        total = tl.dot(left, values, total, out_dtype=tl.int32)
    score = tl.where(vector < vectors, total.to(tl.float32) * unit, float("-inf"))
    best = tl.max(tl.reshape(score, (Q, N // GROUP, GROUP)), axis=2)
    group = tl.program_id(0) * (N // GROUP) + tl.arange(0, N // GROUP)[None, :]
    place = maxima + query.to(tl.int64) * groups + group
    tl.store(place, best.to(maxima.dtype.element_ty), mask=(query < count) & (group < groups))
    top = tops + tl.arange(0, Q) * tl.cdiv(vectors, N) + tl.program_id(0)
    tl.store(top, tl.max(best, axis=1).to(tops.dtype.element_ty), mask=tl.arange(0, Q) < count)


@triton.jit
def greatest(value, entry, home, ROOM: tl.constexpr):
    """The entries of the ROOM greatest values, in their order: the last one's bits are found one by one."""
    bits = value.to(tl.int16, bitcast=True).to(tl.int32)
    rank = tl.where(bits < 0, bits ^ 0x7FFF, bits)  # in the order of the floats
    least = tl.where(tl.sum((rank >= 0).to(tl.int32), 0) >= ROOM, 0, -32768)
    for turn in range(15):
        trial = least | (1 << (14 - turn))
        least = tl.where(tl.sum((rank >= trial).to(tl.int32), 0) >= ROOM, trial, least)
    greater, equal = (rank > least).to(tl.int32), (rank == least).to(tl.int32)
    counted = tl.cumsum(greater + (equal << 16), 0)  # both in one scan
    equals, spare = counted >> 16, ROOM - tl.sum(greater, 0)
    place = (counted & 0xFFFF) + tl.minimum(equals, spare) - 1
    tl.store(home + place, entry, mask=(rank > least) | ((rank == least) & (equals <= spare)))


@triton.jit
def choose(
    maxima, tops, best, tiles, groups,
    KEPT: tl.constexpr, EACH: tl.constexpr, JOINED: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """The best groups of one query: they are in as many of the best spans of JOINED tiles, of EACH groups a tile."""
    query, span, lane = tl.program_id(0), tl.arange(0, ALL), tl.arange(0, KEPT * EACH * JOINED)
    home, value = best + query * KEPT, tl.full((ALL,), float("-inf"), tops.dtype.element_ty)
    for part in tl.static_range(JOINED):
        tile = part * ALL + span  # a span's tiles are ALL apart, so that loads of a warp lie side by side
        value = tl.maximum(value, tl.load(tops + query * tiles + tile, mask=tile < tiles, other=float("-inf")))
    greatest(value, span, home, KEPT)
    tl.debug_barrier()  # all threads have stored, before any of them reads
    tile = tl.load(home + lane // (EACH * JOINED)) + lane // EACH % JOINED * ALL
    group = tile * EACH + lane % EACH
    score = tl.load(maxima + query.to(tl.int64) * groups + group, mask=group < groups, other=float("-inf"))
    tl.debug_barrier()
    greatest(score, group, home, KEPT)


@triton.jit
def refine(queries, table, best, scores, vectors, width, KEPT: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr):
    """The scores of one query with one group, from all bits."""
    query, slot, at = tl.program_id(1), tl.program_id(0), tl.arange(0, D)
    member = tl.arange(0, GROUP)
    vector = tl.load(best + query * KEPT + slot) * GROUP + member
    inside = (vector < vectors)[:, None] & (at < width)[None, :]
    rows = tl.load(table + vector.to(tl.int64)[:, None] * width + at[None, :], mask=inside, other=0.0).to(tl.float32)
    own = tl.load(queries + query * width + at, mask=at < width, other=0.0).to(tl.float32)
    score = tl.where(vector < vectors, tl.sum(rows * own[None, :], axis=1), float("-inf"))
    tl.store(scores + (query * KEPT + slot) * GROUP + member, score)


def prepare(queries: Tensor, table: Tensor, codes: Tensor) -> Step:
    (count, width), vectors = queries.shape, len(table)
    groups, tiles = triton.cdiv(vectors, GROUP), triton.cdiv(vectors, SCAN["N"])
    maxima, tops = (queries.new_empty(count, n, dtype=torch.float16) for n in (groups, tiles))
    best = queries.new_empty(count, KEPT, dtype=torch.int32)
    spans = max(triton.next_power_of_2(triton.cdiv(tiles, JOINED)), KEPT)
    scores = queries.new_empty(count, KEPT * GROUP, dtype=torch.float32)
    coded = torch.empty_like(queries, dtype=torch.int8)
    rows, depth = (max(triton.next_power_of_2(n), 16) for n in (count, width))

    def step() -> Tensor:
        code[(triton.cdiv(queries.numel(), 1024),)](queries, coded, queries.numel(), SCALE, 1024)
        scan[(tiles,)](coded, codes, maxima, tops, count, vectors, width, groups, SCALE**-2, GROUP, rows, **SCAN)
        choose[(count,)](maxima, tops, best, tiles, groups, KEPT, SCAN["N"] // GROUP, JOINED, spans, num_warps=16)
        refine[(KEPT, count)](queries, table, best, scores, vectors, width, KEPT, GROUP, depth, num_warps=8)
        return scores.topk(TOP).values

    return step
