"""Weights are cast once an update; a kernel adds two micro-batches' bf16 gradients to the fp32 sums in one pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch13.baseline_autocast_recast import MICRO_BATCHES, loss_of
from ch13.baseline_autocast_recast import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
BLOCK = 2048


@triton.jit
def add(total, one, other, count, BLOCK: tl.constexpr, FIRST: tl.constexpr):
    """12 bytes for two gradients; the first pair of an update needs no zeros to be added to."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(one + at, inside).to(tl.float32) + tl.load(other + at, inside).to(tl.float32)
    tl.store(total + at, value if FIRST else value + tl.load(total + at, inside), inside)


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    working = [torch.empty_like(weight, dtype=torch.bfloat16, requires_grad=True) for weight in weights]
    sums = [torch.empty_like(weight) for weight in weights]

    def add_two(first: int) -> list[Tensor]:
        """Two micro-batches' losses. Their gradients end with this call, before the next ones are made."""
        losses, gradients = [], []
        for batch in (first, first + 1):
            losses.append(loss_of(x[batch], target[batch], working))
            gradients.append(torch.autograd.grad(losses[-1], working))
        for total, one, other in zip(sums, *gradients):
            grid = (triton.cdiv(total.numel(), BLOCK),)
            add[grid](total, one, other, total.numel(), BLOCK, FIRST=first == 0, num_warps=8)
        return [loss.detach() for loss in losses]

    def step() -> tuple[Tensor, ...]:
        with torch.no_grad():
            torch._foreach_copy_(working, weights)
        told = [loss for first in range(0, MICRO_BATCHES, 2) for loss in add_two(first)]
        return torch.stack(told), *sums

    return step
