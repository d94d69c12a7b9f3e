"""One launch for all sums of squares, and one that scales all: a table tells each program where its numbers lie."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch01.baseline_grad_clip_foreach import LIMIT
from ch01.baseline_grad_clip_foreach import workload as workload
from common.python.workload import Step

NUMBERS = 4096  # of a program: 32 for each of 128 threads


@triton.jit
def piece(table, program, TENSORS: tl.constexpr, NUMBERS: tl.constexpr, ALIGNED: tl.constexpr):
    """Where a program's numbers lie, and which of them are there. Table: first program, length and address of each."""
    begun = tl.load(table + tl.arange(0, TENSORS)) <= program
    own = table + tl.sum(begun.to(tl.int32)) - 1  # the last tensor that has begun
    at = (program - tl.load(own)) * NUMBERS + tl.arange(0, NUMBERS)
    begin = tl.multiple_of(tl.load(own + 2 * TENSORS).to(tl.pointer_type(tl.float32)), 4 * ALIGNED)
    return begin + at, at < tl.multiple_of(tl.load(own + TENSORS), ALIGNED)


@triton.jit
def square_sums(table, sums, TENSORS: tl.constexpr, NUMBERS: tl.constexpr, ALIGNED: tl.constexpr):
    places, mask = piece(table, tl.program_id(0), TENSORS, NUMBERS, ALIGNED)
    numbers = tl.load(places, mask, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum(numbers * numbers))


@triton.jit
def scale(table, norm, LIMIT: tl.constexpr, TENSORS: tl.constexpr, NUMBERS: tl.constexpr, ALIGNED: tl.constexpr):
    last_first = tl.num_programs(0) - 1 - tl.program_id(0)  # L2 still holds what was read last
    places, mask = piece(table, last_first, TENSORS, NUMBERS, ALIGNED)
    tl.store(places, tl.load(places, mask) * (LIMIT / tl.maximum(tl.load(norm), LIMIT)), mask)


def prepare(gradients: list[Tensor]) -> Step:
    counts, places = [each.numel() for each in gradients], [each.data_ptr() for each in gradients]
    programs = [triton.cdiv(count, NUMBERS) for count in counts]
    aligned = math.gcd(4, *counts, *(place // 4 for place in places))  # or loads would go number by number
    table = torch.full((3, triton.next_power_of_2(len(counts))), sum(programs))  # of columns left over, none begins
    table[:, : len(counts)] = torch.tensor([[sum(programs[:i]) for i in range(len(counts))], counts, places])
    table, sums = table.to(gradients[0].device), gradients[0].new_empty(sum(programs))
    options = {"TENSORS": table.shape[1], "NUMBERS": NUMBERS, "ALIGNED": aligned, "num_warps": 4}

    def step() -> tuple[Tensor, ...]:
        square_sums[(len(sums),)](table, sums, **options)
        norm = sums.sum().sqrt()
        scale[(len(sums),)](table, norm, LIMIT, **options)
        return norm, *gradients

    return step
