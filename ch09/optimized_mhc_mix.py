"""One program a token makes the 4 x 4 matrix in registers and mixes the streams with it, in one pass over memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_mhc_mix import ITERATIONS
from ch09.baseline_mhc_mix import workload as workload
from common.python.workload import Step

COLUMNS = 512  # at a time, by the one warp of a program: more warps would each repeat all iterations


@triton.jit
def normalised(a, b, c, d, ITERATIONS: tl.constexpr):
    """The rows of a positive 4 x 4 matrix, until all rows and columns add up to 1."""
    for _ in range(ITERATIONS):
        a, b, c, d = a / tl.sum(a), b / tl.sum(b), c / tl.sum(c), d / tl.sum(d)
        total = a + b + c + d
        a, b, c, d = a / total, b / total, c / total, d / total
    return a, b, c, d


@triton.jit
def connect(streams, update, logits, out, width, ITERATIONS: tl.constexpr, COLUMNS: tl.constexpr):
    token, stream = tl.program_id(0).to(tl.int64), tl.arange(0, 4)
    gates, mixes = logits + token * 24 + 4, logits + token * 24 + 8
    a, b = tl.exp(tl.load(mixes + stream)), tl.exp(tl.load(mixes + 4 + stream))
    c, d = tl.exp(tl.load(mixes + 8 + stream)), tl.exp(tl.load(mixes + 12 + stream))
    a, b, c, d = normalised(a, b, c, d, ITERATIONS)
    e, f = 2 * tl.sigmoid(tl.load(gates)), 2 * tl.sigmoid(tl.load(gates + 1))
    g, h = 2 * tl.sigmoid(tl.load(gates + 2)), 2 * tl.sigmoid(tl.load(gates + 3))
    for start in range(0, width, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        live = column < width
        given = tl.load(update + token * width + column, live, 0.0).to(tl.float32)
        at = token * 4 * width + column
        old = tl.load(streams + at[None, :] + stream[:, None] * width, live[None, :], 0.0).to(tl.float32)
        tl.store(out + at, tl.sum(a[:, None] * old, axis=0) + e * given, live)
        tl.store(out + at + width, tl.sum(b[:, None] * old, axis=0) + f * given, live)
        tl.store(out + at + 2 * width, tl.sum(c[:, None] * old, axis=0) + g * given, live)
        tl.store(out + at + 3 * width, tl.sum(d[:, None] * old, axis=0) + h * given, live)


def prepare(streams: Tensor, update: Tensor, logits: Tensor) -> Step:
    (tokens, _, width), out = streams.shape, torch.empty_like(streams)

    def step() -> Tensor:
        connect[(tokens,)](streams, update, logits, out, width, ITERATIONS, COLUMNS, num_warps=1)
        return out

    return step
