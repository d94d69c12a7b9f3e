"""One kernel does all of Sinkhorn's iterations on matrices that stay in registers; the mixing stays as it was."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_mhc_mix import ITERATIONS, STREAMS
from ch09.baseline_mhc_mix import workload as workload
from common.python.workload import Step

TOKENS = 32  # of a program, which is one warp


@triton.jit
def sinkhorn(logits, gates, mixes, tokens, ITERATIONS: tl.constexpr, TOKENS: tl.constexpr):
    """The rows of a token's matrix are four variables: a row is summed inside each, columns by adding them up."""
    token, column = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)[:, None], tl.arange(0, 4)[None, :]
    live = token < tokens
    at = logits + token * 24 + column
    gate = 2 * tl.sigmoid(tl.load(at + 4, live, 0.0))
    a, b = tl.exp(tl.load(at + 8, live, 0.0)), tl.exp(tl.load(at + 12, live, 0.0))
    c, d = tl.exp(tl.load(at + 16, live, 0.0)), tl.exp(tl.load(at + 20, live, 0.0))
    for _ in range(ITERATIONS):
        a, b = a / tl.sum(a, axis=1)[:, None], b / tl.sum(b, axis=1)[:, None]
        c, d = c / tl.sum(c, axis=1)[:, None], d / tl.sum(d, axis=1)[:, None]
        total = a + b + c + d
        a, b, c, d = a / total, b / total, c / total, d / total
    tl.store(gates + token * 4 + column, gate, live)
    at = mixes + token * 16 + column
    tl.store(at, a, live)
    tl.store(at + 4, b, live)
    tl.store(at + 8, c, live)
    tl.store(at + 12, d, live)


def prepare(streams: Tensor, update: Tensor, logits: Tensor) -> Step:
    tokens = len(streams)
    gates, mix = streams.new_empty(tokens, STREAMS, 1), streams.new_empty(tokens, STREAMS, STREAMS)

    def step() -> Tensor:
        sinkhorn[(triton.cdiv(tokens, TOKENS),)](logits, gates, mix, tokens, ITERATIONS, TOKENS, num_warps=1)
        return torch.einsum("tij,tjc->tic", mix, streams) + gates * update[:, None, :]

    return step
