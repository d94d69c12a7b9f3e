"""The working weight is the master's upper half, and its lower half is kept apart; an update joins and splits them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch13.baseline_split_master_weights import RATE
from ch13.baseline_split_master_weights import workload as workload
from common.python.workload import Step

NUMBERS = 1024  # of a program


@triton.jit
def update(start, gradients, upper, lower, numbers, RATE: tl.constexpr, FIRST: tl.constexpr, NUMBERS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)
    inside = at < numbers
    if FIRST:
        master = tl.load(start + at, inside, 0.0)
    else:
        high, low = tl.load(upper + at, inside, 0).to(tl.int32), tl.load(lower + at, inside, 0).to(tl.int32)
        master = ((high << 16) + low).to(tl.float32, bitcast=True)
    master -= RATE * tl.load(gradients + at, inside, 0.0).to(tl.float32)
    bits = master.to(tl.int32, bitcast=True)
    high = (bits + 0x8000) >> 16  # rounded to the nearest bf16 number, so that the rest has a sign
    tl.store(upper + at, high.to(tl.int16), inside)
    tl.store(lower + at, (bits - (high << 16)).to(tl.int16), inside)


def prepare(start: Tensor, gradients: Tensor) -> Step:
    numbers = len(start)
    working, lower = torch.empty_like(start, dtype=torch.bfloat16), torch.empty_like(start, dtype=torch.int16)
    grid = (triton.cdiv(numbers, NUMBERS),)

    def step() -> Tensor:
        for number, gradient in enumerate(gradients):
            update[grid](start, gradient, working.view(torch.int16), lower, numbers, RATE, number == 0, NUMBERS)
        return working

    return step
