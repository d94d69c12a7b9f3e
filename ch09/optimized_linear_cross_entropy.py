"""An eighth of the tokens at a time: project, take loss and gradient over the logits in place, multiply back, reuse."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_linear_cross_entropy import workload as workload
from common.python.workload import Step

CHUNKS = 8  # each reads and writes the weight's gradient once more, so not more than the memory asks for


@triton.jit
def loss_and_gradient(logits, targets, losses, vocabulary, BLOCK: tl.constexpr):
    """Loss of one token; its logits become the loss's gradient with respect to them."""
    token = tl.program_id(0)
    row = logits + token.to(tl.int64) * vocabulary
    target = tl.load(targets + token)
    # Warps meet in the sums below, so all have this logit before any of them overwrites it.
    hit = tl.load(row + target).to(tl.float32)
    peak, total = float("-inf"), 0.0
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        piece = tl.load(row + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(piece, axis=0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(piece - higher), axis=0)
        peak = higher
    tl.store(losses + token, peak + tl.log(total) - hit)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        share = tl.exp(tl.load(row + at, mask=at < vocabulary, other=0.0).to(tl.float32) - peak) / total
        tl.store(row + at, tl.where(at == target, share - 1.0, share), mask=at < vocabulary)


def prepare(hidden: Tensor, weight: Tensor, targets: Tensor) -> Step:
    tokens, vocabulary = len(hidden), len(weight)
    chunk = triton.cdiv(tokens, CHUNKS)
    block = min(triton.next_power_of_2(vocabulary) // 4, 8192)  # a row in four pieces, or in more
    room = hidden.new_empty(chunk, vocabulary)
    losses = hidden.new_empty(tokens, dtype=torch.float32)
    to_hidden, to_weight = torch.empty_like(hidden), torch.empty_like(weight)
    chunks = list(zip(*(of_all.split(chunk) for of_all in (hidden, targets, losses, to_hidden))))

    def step() -> tuple[Tensor, ...]:
        for index, (x, target, loss, to_x) in enumerate(chunks):
            logits = torch.mm(x, weight.T, out=room[: len(x)])
            loss_and_gradient[(len(x),)](logits, target, loss, vocabulary, BLOCK=block, num_warps=8)
            to_x.addmm_(logits, weight, beta=0, alpha=1 / tokens)
            to_weight.addmm_(logits.T, x, beta=int(index > 0), alpha=1 / tokens)  # 0: what was there does not count
        return losses.mean(), to_hidden, to_weight

    return step
