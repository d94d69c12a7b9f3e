"""One kernel, but all warps meet twice in each piece of the row, to bring its maximum and sum up to date."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_cross_entropy_grad import workload as workload
from common.python.workload import Step


@triton.jit
def loss_and_gradient(logits, targets, losses, vocabulary, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    row = logits + token.to(tl.int64) * vocabulary
    target = tl.load(targets + token)
    # Warps meet in the sums below, so all have this logit before any of them overwrites it.
    hit = tl.load(row + target).to(tl.float32)
    peak, total = float("-inf"), 0.0
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(row + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(values, axis=0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(values - higher), axis=0)
        peak = higher
    tl.store(losses + token, peak + tl.log(total) - hit)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        share = tl.exp(tl.load(row + at, mask=at < vocabulary, other=0.0).to(tl.float32) - peak) / total
        tl.store(row + at, tl.where(at == target, share - 1.0, share), mask=at < vocabulary)


def prepare(logits: Tensor, targets: Tensor) -> Step:
    tokens, vocabulary = logits.shape
    losses = logits.new_empty(tokens, dtype=torch.float32)
    block = min(triton.next_power_of_2(triton.cdiv(vocabulary, 4)), 32768)

    def step() -> tuple[Tensor, ...]:
        loss_and_gradient[(tokens,)](logits, targets, losses, vocabulary, BLOCK=block, num_warps=32)
        return losses.sum(), logits

    return step
