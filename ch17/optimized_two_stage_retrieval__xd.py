"""A scan of 8-bit codes keeps the best score of every 16 vectors; all bits are read of the best 64 groups alone."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_two_stage_retrieval import SCALE, TOP, coded
from ch17.baseline_two_stage_retrieval import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=40)
GROUP = 16  # vectors that one maximum stands for
KEPT = 2 * TOP  # groups: score 64 is below score 32 by 12 times what the rounding of codes does (rms)
EACH = 4  # programs of a multiprocessor
SCAN = {"N": 128, "K": 128, "num_warps": 4, "num_stages": 3}


@triton.jit
def scan(
    queries, codes, maxima, count, vectors, width, groups, unit,
    GROUP: tl.constexpr, Q: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The products of N vectors' codes with those of all queries, and the largest of each group, tile after tile.

    One loop over the pieces of all tiles of a program, so that the next tile's codes are loaded while one ends.
    """
    query, member, programs = tl.arange(0, Q)[:, None], tl.arange(0, N)[None, :], tl.num_programs(0)
    pieces, total, piece = tl.cdiv(width, K), tl.zeros((Q, N), tl.int32), -1
    tiles, tile = tl.cdiv(tl.cdiv(vectors, N) - tl.program_id(0), programs), tl.program_id(0) - programs
    for _ in range(0, tiles * pieces):
        piece = tl.where(piece == pieces - 1, 0, piece + 1)
        tile = tl.where(piece == 0, tile + programs, tile)
        at, vector = piece * K + tl.arange(0, K), tile * N + member
        left = tl.load(queries + query * width + at[None, :], mask=(query < count) & (at < width)[None, :], other=0)
        inside = (vector < vectors) & (at < width)[:, None]
        values = tl.load(codes + vector.to(tl.int64) * width + at[:, None], mask=inside, other=0)
        total = tl.dot(left, values, total, out_dtype=tl.int32)
        if piece == pieces - 1:
            score = tl.where(vector < vectors, total.to(tl.float32) * unit, float("-inf"))
            best = tl.max(tl.reshape(score, (Q, N // GROUP, GROUP)), axis=2)
            group = tile * (N // GROUP) + tl.arange(0, N // GROUP)[None, :]
            place = maxima + query.to(tl.int64) * groups + group
            tl.store(place, best.to(maxima.dtype.element_ty), mask=(query < count) & (group < groups))
            total = tl.zeros((Q, N), tl.int32)


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
    groups = triton.cdiv(vectors, GROUP)
    maxima = queries.new_empty(count, groups, dtype=torch.float16)  # of 16 bits, for topk has a pass for every 8
    scores = queries.new_empty(count, KEPT * GROUP, dtype=torch.float32)
    cores = torch.cuda.get_device_properties(queries.device).multi_processor_count if queries.is_cuda else 1
    programs = min(triton.cdiv(vectors, SCAN["N"]), EACH * cores)
    rows, depth = (max(triton.next_power_of_2(n), 16) for n in (count, width))

    def step() -> Tensor:
        scan[(programs,)](
            coded(queries), codes, maxima, count, vectors, width, groups, SCALE**-2, GROUP, rows, **SCAN
        )
        best = maxima.topk(KEPT, sorted=False).indices
        refine[(KEPT, count)](queries, table, best, scores, vectors, width, KEPT, GROUP, depth, num_warps=8)
        return scores.topk(TOP).values

    return step
