"""Group norm in three passes over groups of a million values: their mean, then their variance, then the result."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

EPSILON, TOGETHER = 1e-6, 4  # channels of a group


def inputs(draw: Draw, images: int, channels: int, side: int) -> Inputs:
    return {
        "x": draw.normal(images, channels, side, side, dtype=torch.bfloat16).add_(2.0),  # no mean of zero
        "gain": draw.uniform(channels, low=0.75, high=1.25, dtype=torch.bfloat16),
        "shift": draw.normal(channels, std=0.25, dtype=torch.bfloat16),
    }


def reference(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    grouped = x.reshape(len(x), x.shape[1] // TOGETHER, -1)
    variance, mean = torch.var_mean(grouped, dim=2, correction=0, keepdim=True)
    normed = ((grouped - mean) * (variance + EPSILON).rsqrt()).view(x.shape)
    return normed * gain[:, None, None] + shift[:, None, None]


workload = Workload(
    inputs=inputs,
    reference=reference,
    # One read: several SMs together could hold a group of 2 MB.
    cost=lambda images, channels, side: Cost(
        read=2 * images * channels * side**2, write=2 * images * channels * side**2
    ),
    sizes={
        "bench": {"images": 8, "channels": 128, "side": 512},  # the last blocks of an image decoder
        "test": {"images": 2, "channels": 8, "side": 37},
    },
    tolerance=6e-3,  # rounding to bf16 is off by 1.7e-3
)


@triton.jit
def chunk_of(x, plane_size, BLOCK: tl.constexpr):
    """A part of one channel of one image, in fp32 with zeros past its end; its mask, and where it lies."""
    within = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(1).to(tl.int64) * plane_size + within
    mask = within < plane_size
    return tl.load(x + at, mask=mask, other=0.0).to(tl.float32), mask, at


@triton.jit
def group_total(partials, planes_a_group, PARTS: tl.constexpr):
    """The sum of what all chunks of this program's group have left."""
    count = planes_a_group * tl.num_programs(0)
    part = tl.arange(0, PARTS)
    place = partials + tl.program_id(1) // planes_a_group * count + part
    return tl.sum(tl.load(place, mask=part < count, other=0.0), axis=0)


@triton.jit
def add_values(x, sums, plane_size, BLOCK: tl.constexpr):
    values, _, _ = chunk_of(x, plane_size, BLOCK)
    tl.store(sums + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.sum(values, axis=0))


@triton.jit
def add_squares(x, sums, squares, plane_size, planes_a_group, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    mean = group_total(sums, planes_a_group, PARTS) / (planes_a_group * plane_size)
    values, mask, _ = chunk_of(x, plane_size, BLOCK)
    away = tl.where(mask, values - mean, 0.0)
    tl.store(squares + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.sum(away * away, axis=0))


@triton.jit
def normalize(
    x,
    sums,
    squares,
    gain,
    shift,
    out,
    plane_size,
    planes_a_group,
    channels,
    epsilon,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    count = planes_a_group * plane_size
    mean = group_total(sums, planes_a_group, PARTS) / count
    scale = tl.rsqrt(group_total(squares, planes_a_group, PARTS) / count + epsilon)
    channel = tl.program_id(1) % channels
    factor = tl.load(gain + channel).to(tl.float32) * scale
    values, mask, at = chunk_of(x, plane_size, BLOCK)
    tl.store(out + at, (values - mean) * factor + tl.load(shift + channel).to(tl.float32), mask=mask)


def chunks(x: Tensor) -> tuple[tuple[int, int], dict[str, int], dict[str, int]]:
    """The grid (chunks of a plane, planes), and the options of kernels without and with a group's partial results."""
    planes, plane_size = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
    block = min(max(triton.next_power_of_2(plane_size) // 4, 1), 8192)
    grid = triton.cdiv(plane_size, block), planes
    options = {"BLOCK": block, "num_warps": 8}
    return grid, options, options | {"PARTS": triton.next_power_of_2(grid[0] * TOGETHER)}


def prepare(x: Tensor, gain: Tensor, shift: Tensor) -> Step:
    channels, size = x.shape[1], x.shape[2] * x.shape[3]
    grid, options, with_parts = chunks(x)
    sums, squares = (x.new_empty(grid, dtype=torch.float32) for _ in range(2))
    out = torch.empty_like(x)

    def step() -> Tensor:
        add_values[grid](x, sums, size, **options)
        add_squares[grid](x, sums, squares, size, TOGETHER, **with_parts)
        normalize[grid](x, sums, squares, gain, shift, out, size, TOGETHER, channels, EPSILON, **with_parts)
        return out

    return step
