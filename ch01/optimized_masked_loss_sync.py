"""One kernel looks at the mask itself and skips padded rows; the logits of others are read once: no copy, no wait."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch01.baseline_masked_loss_sync import workload as workload
from common.python.workload import Step

BLOCK = 2048  # logits of a row at a time


@triton.jit
def token_losses(logits, labels, mask, losses, vocabulary, BLOCK: tl.constexpr):
    """A program a token: log(sum(exp(logits))) minus the label's logit, and zero for a token that does not count."""
    token = tl.program_id(0).to(tl.int64)
    loss = 0.0
    if tl.load(mask + token) != 0:
        row, column = logits + token * vocabulary, tl.arange(0, BLOCK)
        peak = tl.full((BLOCK,), -1e30, tl.float32)  # finite, so that two of them may be subtracted
        total = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, vocabulary, BLOCK):
            logit = tl.load(row + first + column, mask=first + column < vocabulary, other=-1e30)
            less = tl.exp(-tl.abs(logit - peak))  # of whichever is smaller: one exponential for each logit
            total = tl.where(logit > peak, total * less + 1.0, total + less)
            peak = tl.maximum(peak, logit)
        highest = tl.max(peak)
        hit = tl.load(row + tl.load(labels + token))
        loss = tl.log(tl.sum(total * tl.exp(peak - highest))) + highest - hit
    tl.store(losses + token, loss)


@triton.jit
def averages(losses, mask, out, tokens, WIDTH: tl.constexpr):
    """A program a batch: the mean of its tokens that count."""
    batch, token = tl.program_id(0), tl.arange(0, WIDTH)
    place, inside = batch * tokens + token, token < tokens
    counted = tl.load(mask + place, mask=inside, other=0).to(tl.int32)
    tl.store(out + batch, tl.sum(tl.load(losses + place, mask=inside, other=0.0)) / tl.sum(counted))


def prepare(logits: Tensor, labels: Tensor, mask: Tensor) -> Step:
    batches, tokens, vocabulary = logits.shape
    losses, out = logits.new_empty(batches, tokens), logits.new_empty(batches)
    given, width = mask.view(torch.uint8), triton.next_power_of_2(tokens)

    def step() -> Tensor:
        token_losses[(batches * tokens,)](logits, labels, given, losses, vocabulary, BLOCK=BLOCK, num_warps=4)
        averages[(batches,)](losses, given, out, tokens, WIDTH=width, num_warps=8)
        return out

    return step
