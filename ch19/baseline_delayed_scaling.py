"""A cast with the scale of this very tensor: one walk for the largest magnitude, and only then a second one to cast."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=89)
SHAPE = {"TILES": 4, "BLOCK": 4096, "num_warps": 8}  # a program's numbers


def inputs(draw: Draw, rows: int, columns: int, length: int) -> Inputs:
    """Numbers of e4m3 times a power of two, which a cast with such a scale keeps; and the last maxima, newest first.

    All maxima lie between 3.5 and 7 times that power, which asks for one scale: old ones and this one give one answer.
    """
    power = torch.exp2(draw.integers(1, low=-8, high=8).float())
    x = draw.normal(rows, columns).clamp_(-6, 6)
    x[0, 0] = 4
    return {
        "x": (x.to(torch.float8_e4m3fn).float() * power).bfloat16(),
        "history": draw.uniform(length, low=3.6, high=6.9) * power,
    }


def reference(x: Tensor, history: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes as bytes, the scale that numbers were multiplied with, and the history with this maximum in front."""
    amax = x.abs().max()
    scale = torch.exp2(torch.floor(torch.log2(448 / amax)))
    codes = (x * scale).to(torch.float8_e4m3fn).view(torch.uint8)
    return codes, scale[None], torch.cat([amax[None], history[:-1]])


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda rows, columns, length: Cost(read=2 * rows * columns + 4 * length, write=rows * columns + 4 * length),
    sizes={
        "bench": {"rows": 16384, "columns": 8192, "length": 16},
        "test": {"rows": 131, "columns": 257, "length": 5},
    },
    tolerance=0.0,  # bytes and powers of two
    mutates=("history",),
)


@triton.jit
def shift(history, length, LENGTH: tl.constexpr):
    """All maxima move on by one, the oldest is dropped, and the first place waits for its maximum."""
    at = tl.arange(0, LENGTH)
    old = tl.load(history + at - 1, (at > 0) & (at < length), 0.0)
    tl.debug_barrier()
    tl.store(history + at, old, at < length)


@triton.jit
def magnitude(x, history, count, TILES: tl.constexpr, BLOCK: tl.constexpr):
    largest = tl.zeros((BLOCK,), tl.float32)
    for tile in tl.static_range(TILES):
        at = (tl.program_id(0).to(tl.int64) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.abs(tl.load(x + at, at < count, 0.0).to(tl.float32)))
    tl.atomic_max(history, tl.max(largest, 0), sem="relaxed")


@triton.jit
def cast(
    x, history, codes, scales, count, first, last,
    RECORD: tl.constexpr, LENGTH: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """With the scale of the maxima from `first` to `last`, the greatest power of two with which they fit under 448."""
    slot = tl.arange(0, LENGTH)
    bits = tl.max(tl.load(history + slot, (slot >= first) & (slot < last), 0.0), 0).to(tl.int32, bitcast=True)
    biased = tl.minimum(262 - (bits + 0x1FFFFF >> 23), 254)  # 448 is 1.75 x 2^8, and what is above 1.75 rounds up
    scale = (biased << 23).to(tl.float32, bitcast=True)
    largest = tl.zeros((BLOCK,), tl.float32)
    for tile in tl.static_range(TILES):
        at = (tl.program_id(0).to(tl.int64) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        number = tl.load(x + at, at < count, 0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(number))
        tl.store(codes + at, tl.clamp(number * scale, -448.0, 448.0).to(codes.dtype.element_ty), at < count)
    if RECORD:
        tl.atomic_max(history, tl.max(largest, 0), sem="relaxed")
    tl.store(scales, scale, tl.program_id(0) == 0)


def casting(x: Tensor, history: Tensor, delayed: bool) -> Step:
    codes, scale = torch.empty_like(x, dtype=torch.float8_e4m3fn), history.new_empty(1)
    grid, length = (triton.cdiv(x.numel(), SHAPE["TILES"] * SHAPE["BLOCK"]),), len(history)
    slots = triton.next_power_of_2(length)
    used = (1, length) if delayed else (0, 1)

    def step() -> tuple[Tensor, Tensor, Tensor]:
        shift[(1,)](history, length, slots)
        if not delayed:
            magnitude[grid](x, history, x.numel(), **SHAPE)
        cast[grid](x, history, codes, scale, x.numel(), *used, delayed, slots, **SHAPE)
        return codes.view(torch.uint8), scale, history

    return step


def prepare(x: Tensor, history: Tensor) -> Step:
    return casting(x, history, delayed=False)
