"""Moments are kept as 8-bit logarithms below their block's largest; one kernel widens, updates and rounds them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch19.baseline_adam8bit import BETA1, BETA2, DECAY, EPSILON, RATE
from ch19.baseline_adam8bit import workload as workload
from common.python.workload import Step

BLOCK, BLOCKS = 256, 8  # numbers that share a scale, and how many such blocks a program has
HYPER = {"RATE": RATE, "DECAY": DECAY, "BETA1": BETA1, "BETA2": BETA2, "EPSILON": EPSILON}


@triton.jit
def widen(code, scale, TOP: tl.constexpr):
    """TOP is the scale itself, and 8 less is half of it; 0 is zero."""
    return tl.where(code == 0, 0.0, scale * tl.exp2((code - TOP).to(tl.float32) * 0.125))


@triton.jit
def rounded(size, scale, LEAST: tl.constexpr, TOP: tl.constexpr):
    """The nearest code on the scale of logarithms; what is smaller than the smallest becomes LEAST."""
    steps = TOP + 0.5 + 8 * tl.log2(tl.maximum(size / scale, 1e-30))
    return tl.minimum(tl.maximum(steps, LEAST), TOP).to(tl.int32)


@triton.jit
def adamw(
    parameters,
    gradients,
    codes,
    scales,
    numbers,
    unbias1,
    root2,
    RATE: tl.constexpr,
    DECAY: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    at = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside, begun = at < numbers, block * BLOCK < numbers
    p, g = tl.load(parameters + at, inside, 0.0), tl.load(gradients + at, inside, 0.0)
    signed = tl.load(codes + at, inside, 0).to(tl.int32)  # of the mean: a sign, and seven bits
    above = tl.load(codes + numbers + at, inside, 0).to(tl.int32) & 0xFF  # of the square: eight bits
    m = widen(tl.abs(signed), tl.load(scales + 2 * block, begun, 0.0)[:, None], 127)
    v = widen(above, tl.load(scales + 2 * block + 1, begun, 0.0)[:, None], 255)
    m = BETA1 * tl.where(signed < 0, -m, m) + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    p -= RATE * (DECAY * p + m * unbias1 / (tl.sqrt(v) * root2 + EPSILON))
    tl.store(parameters + at, p, inside)
    largest_m, largest_v = tl.maximum(tl.max(tl.abs(m), 1), 1e-30), tl.maximum(tl.max(v, 1), 1e-30)
    tl.store(scales + 2 * block, largest_m, begun)
    tl.store(scales + 2 * block + 1, largest_v, begun)
    size = rounded(tl.abs(m), largest_m[:, None], 0, 127)
    tl.store(codes + at, tl.where(m < 0, -size, size).to(tl.int8), inside)
    # a square is never rounded to zero, for the mean is divided by its root
    tl.store(codes + numbers + at, rounded(v, largest_v[:, None], 1, 255).to(tl.int8), inside)


def prepare(parameters: Tensor, gradients: Tensor) -> Step:
    numbers = len(parameters)
    codes = parameters.new_zeros(2 * numbers, dtype=torch.int8)
    scales = parameters.new_zeros(2 * triton.cdiv(numbers, BLOCK))
    grid = (triton.cdiv(numbers, BLOCK * BLOCKS),)

    def step() -> Tensor:
        codes.zero_()
        for update, gradient in enumerate(gradients, 1):
            unbias1, root2 = 1 / (1 - BETA1**update), (1 - BETA2**update) ** -0.5
            adamw[grid](
                parameters, gradient, codes, scales, numbers, unbias1, root2, **HYPER, BLOCK=BLOCK, BLOCKS=BLOCKS
            )
        return parameters

    return step
