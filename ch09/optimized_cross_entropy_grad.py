"""One kernel: each lane sums its part of a row as it streams by, then the gradient is written over the logits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_cross_entropy_grad import workload as workload
from common.python.workload import Step

LANE = 8  # neighbouring logits that one thread holds: 16 bytes, one load
NEVER = tl.constexpr(-1e30)  # below any logit, yet finite: two of them may be subtracted


@triton.jit
def piece_at(piece, LANES: tl.constexpr, LANE: tl.constexpr):
    return piece * LANES * LANE + (tl.arange(0, LANES) * LANE)[:, None] + tl.arange(0, LANE)[None, :]


@triton.jit
def loss_and_gradient(logits, targets, losses, vocabulary, LANES: tl.constexpr, LANE: tl.constexpr):
    token = tl.program_id(0)
    row = logits + token.to(tl.int64) * vocabulary
    target = tl.load(targets + token)
    # Warps meet in the reductions below, so all have this logit before any of them overwrites it.
    hit = tl.load(row + target).to(tl.float32)
    peaks, totals = tl.full((LANES,), NEVER, tl.float32), tl.zeros((LANES,), tl.float32)
    pieces = tl.cdiv(vocabulary, LANES * LANE)
    for piece in range(pieces):
        at = piece_at(piece, LANES, LANE)
        values = tl.load(row + at, mask=at < vocabulary, other=float("-inf"), eviction_policy="evict_last")
        values = values.to(tl.float32)
        higher = tl.maximum(peaks, tl.max(values, axis=1))  # axis 1 is within a thread: no warp waits for another
        totals = totals * tl.exp(peaks - higher) + tl.sum(tl.exp(values - higher[:, None]), axis=1)
        peaks = higher
    peak = tl.max(peaks, axis=0)
    total = tl.sum(totals * tl.exp(peaks - peak), axis=0)
    tl.store(losses + token, peak + tl.log(total) - hit)
    for piece in range(pieces):
        at = piece_at(pieces - 1 - piece, LANES, LANE)  # backwards: what was read last is the surest to be in L2
        values = tl.load(row + at, mask=at < vocabulary, other=0.0, eviction_policy="evict_first")
        share = tl.exp(values.to(tl.float32) - peak) / total
        slope = tl.where(at == target, share - 1.0, share)
        tl.store(row + at, slope, mask=at < vocabulary, eviction_policy="evict_first")


def prepare(logits: Tensor, targets: Tensor) -> Step:
    tokens, vocabulary = logits.shape
    losses = logits.new_empty(tokens, dtype=torch.float32)
    lanes = min(triton.next_power_of_2(vocabulary) // 4, 32768) // LANE
    # 32 warps fill an SM with one row: 132 rows of 256 KB are 34 MB, which an L2 of 50 MB still has when read again.
    options = {"LANES": lanes, "LANE": LANE, "num_warps": 32}

    def step() -> tuple[Tensor, ...]:
        loss_and_gradient[(tokens,)](logits, targets, losses, vocabulary, **options)
        return losses.sum(), logits

    return step
