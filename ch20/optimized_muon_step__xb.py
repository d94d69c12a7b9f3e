"""Experiment, eight warps: one half of symmetric products, and wide matrices iterate on their Gram matrix."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch20.baseline_muon_step import COEFFICIENTS, DECAY, MOMENTUM, RATE, ROUNDS, rate
from ch20.baseline_muon_step import workload as workload
from common.python.workload import Step

NUMBERS = 2048  # of a program that updates momenta
Member = tuple[int, bool]  # a matrix, and whether it is tall


@triton.jit
def place(row, like, ALIGNED: tl.constexpr):
    """Where a tensor lies; the compiler must hear that it is aligned, or it loads number by number."""
    return tl.multiple_of(tl.load(row).to(like.dtype), ALIGNED)


@triton.jit
def begin(
    table, squares, like, TENSORS: tl.constexpr, NUMBERS: tl.constexpr, ALIGNED: tl.constexpr, KEPT: tl.constexpr
):
    """New momenta, the updates in the order of the stacks, and the sum of each update's squares."""
    program = tl.program_id(0)
    begun = tl.load(table + tl.arange(0, TENSORS)) <= program
    own = tl.sum(begun.to(tl.int32)) - 1  # the last tensor that has begun
    row = table + own
    at = (program - tl.load(row)) * NUMBERS + tl.arange(0, NUMBERS)
    mask = at < tl.load(row + TENSORS)
    gradient, momentum = place(row + 2 * TENSORS, like, ALIGNED) + at, place(row + 3 * TENSORS, like, ALIGNED) + at
    g = tl.load(gradient, mask=mask, other=0.0).to(tl.float32)
    m = tl.load(momentum, mask=mask, other=0.0).to(tl.float32) * KEPT + g * (1 - KEPT)
    update = (g * (1 - KEPT) + m * KEPT).to(like.dtype.element_ty)
    tl.store(momentum, m, mask=mask)
    tl.store(place(row + 4 * TENSORS, like, ALIGNED) + at, update, mask=mask)
    tl.atomic_add(squares + own, tl.sum(update.to(tl.float32) * update.to(tl.float32)), sem="relaxed")


# All matrices are described as [batch, rows, columns]; beyond the edges there are zeros, and nothing is stored.
@triton.jit
def symmetric(
    a, b, old, out, squares, n, depth, first, second, third,
    TALL: tl.constexpr, POLYNOMIAL: tl.constexpr, SCALED: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """a @ b.T where that is symmetric: tiles below the diagonal and their mirror images; of tall matrices a.T @ b."""
    tile, batch = tl.program_id(0), tl.program_id(1)
    i = ((tl.sqrt(8.0 * tile + 1.0) - 1.0) / 2.0).to(tl.int32)
    i = tl.where(i * (i + 1) // 2 > tile, i - 1, i)
    i = tl.where((i + 1) * (i + 2) // 2 <= tile, i + 1, i)
    top, left = i * TILE, (tile - i * (i + 1) // 2) * TILE
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, depth, DEPTH):
        if TALL:
            x, y = a.load([batch, k, top]).reshape(DEPTH, TILE), b.load([batch, k, left]).reshape(DEPTH, TILE)
            total = tl.dot(x.T, y, total, input_precision="ieee")
        else:
            x, y = a.load([batch, top, k]).reshape(TILE, DEPTH), b.load([batch, left, k]).reshape(TILE, DEPTH)
            total = tl.dot(x, y.T, total, input_precision="ieee")
    if SCALED:
        total /= tl.load(squares + batch)
    if POLYNOMIAL:
        row, column = top + tl.arange(0, TILE), left + tl.arange(0, TILE)
        total = third * total + second * old.load([batch, top, left]).reshape(TILE, TILE).to(tl.float32)
        total += tl.where(row[:, None] == column[None, :], first, 0.0)
    result = total.to(out.dtype)
    out.store([batch, top, left], result.reshape(1, TILE, TILE))
    mirror = tl.where(top > left, left, n)  # a tile on the diagonal holds both halves
    out.store([batch, mirror, top], result.T.reshape(1, TILE, TILE))


@triton.jit
def multiply(
    a, b, out, squares, table, tensors, rows, columns, depth, kept, rate,
    LAST: tl.constexpr, SCALED: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """a @ b, stored, or at last taken from weights, whose places are in the table."""
    batch, across = tl.program_id(1), tl.cdiv(columns, TILE)
    top, left = tl.program_id(0) // across * TILE, tl.program_id(0) % across * TILE
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, depth, DEPTH):
        x, y = a.load([batch, top, k]).reshape(TILE, DEPTH), b.load([batch, k, left]).reshape(DEPTH, TILE)
        total = tl.dot(x, y, total, input_precision="ieee")
    if SCALED:
        total *= tl.rsqrt(tl.load(squares + batch))
    if LAST:
        row, column = top + tl.arange(0, TILE), left + tl.arange(0, TILE)
        at, mask = row[:, None] * columns + column[None, :], (row < rows)[:, None] & (column < columns)[None, :]
        weight = place(table + 5 * tensors + batch, out, ALIGNED) + at
        tl.store(weight, kept * tl.load(weight, mask=mask, other=0.0).to(tl.float32) - rate * total, mask=mask)
    else:
        out.store([batch, top, left], total.to(out.dtype).reshape(1, TILE, TILE))


def box(x: Tensor, rows: int, columns: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(x, [1, rows, columns])


def prepare(weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> Step:
    like, size = weights[0], weights[0].element_size()
    tile, depth, options = 128 // (size // 2), 64 // (size // 2), {"num_warps": 8, "num_stages": 3}
    alike: dict[tuple[int, int], list[int]] = {}
    for index, weight in enumerate(weights):
        alike.setdefault((min(weight.shape), max(weight.shape)), []).append(index)
    order = [index for group in alike.values() for index in sorted(group, key=lambda i: weights[i].shape[0])]
    stacks: list[Tensor] = []  # matrices of one shape that follow each other
    for index in order:
        if not stacks or stacks[-1].shape[1:] != weights[index].shape:
            count = sum(weights[other].shape == weights[index].shape for other in order)
            stacks.append(like.new_empty(count, *weights[index].shape))
    slots = [slot.data_ptr() for stack in stacks for slot in stack]
    counts = [weights[index].numel() for index in order]
    programs = [triton.cdiv(count, NUMBERS) for count in counts]
    places = [[of[index].data_ptr() for index in order] for of in (gradients, momenta)]
    rows = [[sum(programs[:i]) for i in range(len(order))], counts, *places, slots]
    rows.append([weights[index].data_ptr() for index in order])
    aligned = math.gcd(16, *(address for row in rows[2:] for address in row), *(size * count for count in counts))
    table = torch.full((6, triton.next_power_of_2(len(order))), sum(programs))  # of columns left over, none begins
    table[:, : len(order)] = torch.tensor(rows)
    table = table.to(like.device)
    squares, tensors = like.new_empty(len(order), dtype=torch.float32), table.shape[1]
    first, second, third = COEFFICIENTS
    work = []

    def halved(a: Tensor, b: Tensor, out: Tensor, sums: Tensor | None = None, old: Tensor | None = None) -> None:
        """a @ b.T to `out`, or, of tall matrices, a.T @ b; with an `old` Gram matrix the polynomial of it."""
        n, tall = out.shape[1], a.shape[1] > a.shape[2]
        side, tiles, sides = (depth, tile) if tall else (tile, depth), triton.cdiv(n, tile), (tile, tile)
        grid, into = (tiles * (tiles + 1) // 2, len(out)), box(out, *sides)
        given = box(a, *side), box(b, *side), into if old is None else box(old, *sides), into
        numbers = squares if sums is None else sums, n, max(a.shape[1:]), first, second, third
        flags = tall, old is not None, sums is not None, tile, depth
        work.append(lambda: symmetric[grid](*given, *numbers, *flags, **options))

    def multiplied(a: Tensor, b: Tensor, out: Tensor | None, sums: Tensor | None = None, begun: int = 0) -> None:
        """a @ b to `out`, or out of weights, of which `begun` are before those of the stack."""
        high, wide = a.shape[1], b.shape[2]
        grid = triton.cdiv(high, tile) * triton.cdiv(wide, tile), len(a)
        given = box(a, tile, depth), box(b, depth, tile), like if out is None else box(out, tile, tile)
        numbers = squares if sums is None else sums, table[:, begun:], tensors, high, wide, a.shape[2]
        rest = 1 - RATE * DECAY, rate((high, wide)), out is None, sums is not None, aligned, tile, depth
        work.append(lambda: multiply[grid](*given, *numbers, *rest, **options))

    begun = 0
    for (short, long), group in alike.items():
        own, count = [stack for stack in stacks if {short, long} == set(stack.shape[1:])], len(group)
        sums = squares[begun : begun + count]
        gram, factor, spare, total, other = (like.new_empty(count, short, short) for _ in range(5))
        at = 0
        for stack in own:
            part = slice(at, at + len(stack))
            halved(stack, stack, gram[part], sums[part])
            at += len(stack)
        for turn in range(ROUNDS):
            last = turn == ROUNDS - 1
            halved(gram, gram, total if turn == 0 and short < long else factor, old=gram)
            if short == long:
                x = own[0] if turn == 0 else spare if turn % 2 else other
                into = None if last else other if turn % 2 else spare
                multiplied(factor, x, into, sums if turn == 0 else None, begun)
                if into is not None:
                    halved(into, into, gram)
                continue
            power = total if turn == 0 else factor
            if turn > 0:
                halved(total, factor, other)
                total, other = other, total
            if not last:
                halved(gram, power, spare)
                halved(spare, power, gram)
        at = 0
        for stack in own:
            part = slice(at, at + len(stack))
            if short < long:
                pair = (stack, total[part]) if stack.shape[1] > short else (total[part], stack)
                multiplied(*pair, None, sums[part], begun + at)
            at += len(stack)
        begun += count
    grid = (sum(programs),)

    def step() -> tuple[Tensor, ...]:
        squares.zero_()
        begin[grid](table, squares, like, tensors, NUMBERS, aligned, MOMENTUM, num_warps=4)
        for launch in work:
            launch()
        return *weights, *momenta

    return step
