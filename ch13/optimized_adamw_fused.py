"""One launch for all tensors, and a short program for each 1,024 numbers: no loop, and no last wave to wait for."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch13.baseline_adamw_fused import BETA1, BETA2, DECAY, EPSILON, RATE
from ch13.baseline_adamw_fused import workload as workload
from common.python.workload import Step

NUMBERS = 1024  # of a program: eight for each of 128 threads, which have eight loads of 16 bytes in flight
HYPER = {"KEPT": 1 - RATE * DECAY, "BETA1": BETA1, "BETA2": BETA2, "EPSILON": EPSILON}


@triton.jit
def place(row, ALIGNED: tl.constexpr):
    """Where a tensor lies; the compiler must hear that it is aligned, or it loads number by number."""
    return tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), 4 * ALIGNED)


@triton.jit
def adamw(
    table,
    rate,
    root,
    TENSORS: tl.constexpr,
    NUMBERS: tl.constexpr,
    ALIGNED: tl.constexpr,
    KEPT: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
):
    program = tl.program_id(0)
    begun = tl.load(table + tl.arange(0, TENSORS)) <= program
    own = table + tl.sum(begun.to(tl.int32)) - 1  # the last tensor that has begun
    at = (program - tl.load(own)) * NUMBERS + tl.arange(0, NUMBERS)
    mask = at < tl.multiple_of(tl.load(own + TENSORS), ALIGNED)
    parameter, gradient = place(own + 2 * TENSORS, ALIGNED) + at, place(own + 3 * TENSORS, ALIGNED) + at
    mean, square = place(own + 4 * TENSORS, ALIGNED) + at, place(own + 5 * TENSORS, ALIGNED) + at
    p, g, m, v = tl.load(parameter, mask), tl.load(gradient, mask), tl.load(mean, mask), tl.load(square, mask)
    m += (g - m) * (1 - BETA1)
    v = v * BETA2 + g * g * (1 - BETA2)
    tl.store(parameter, p * KEPT - rate * m / (tl.sqrt(v) * root + EPSILON), mask)
    tl.store(mean, m, mask)
    tl.store(square, v, mask)


def prepare(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], update: Tensor
) -> Step:
    """Of each tensor, a column of the table has its first program, its length, and where its four parts lie."""
    counts = [tensor.numel() for tensor in parameters]
    programs = [triton.cdiv(count, NUMBERS) for count in counts]
    places = [[tensor.data_ptr() for tensor in tensors] for tensors in (parameters, gradients, means, squares)]
    aligned = math.gcd(4, *counts, *(address // 4 for row in places for address in row))
    table = torch.full((6, triton.next_power_of_2(len(counts))), sum(programs))  # of columns left over, none begins
    table[:, : len(counts)] = torch.tensor([[sum(programs[:i]) for i in range(len(counts))], counts, *places])
    table = table.to(parameters[0].device)
    options = {**HYPER, "TENSORS": table.shape[1], "NUMBERS": NUMBERS, "ALIGNED": aligned}

    def step() -> tuple[Tensor, ...]:
        rate, root = RATE / (1 - BETA1 ** int(update)), (1 - BETA2 ** int(update)) ** -0.5
        adamw[(sum(programs),)](table, rate, root, **options, num_warps=4)
        return *parameters, *means, *squares

    return step
