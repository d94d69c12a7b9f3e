"""The depthwise convolution writes its result to memory, and the pointwise product reads it from there."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import conv2d

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, images: int, side: int, channels: int, results: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "x": draw.normal(images, side, side, channels, dtype=element),  # channels last
        "depthwise": draw.normal(3, 3, channels, std=1 / 3, dtype=element),
        "pointwise": draw.normal(channels, results, std=channels**-0.5, dtype=element),
    }


def reference(x: Tensor, depthwise: Tensor, pointwise: Tensor) -> Tensor:
    filters = depthwise.permute(2, 0, 1)[:, None].contiguous()
    planes = x.permute(0, 3, 1, 2)
    parts = [
        conv2d(part, filters, padding=1, groups=len(filters)).permute(0, 2, 3, 1) @ pointwise
        for part in planes.split(8)
    ]
    return torch.cat(parts)  # eight images at a time


def cost(images: int, side: int, channels: int, results: int, dtype: str) -> Cost:
    pixels, weights = images * side * side, channels * (9 + results)
    flops = 2 * pixels * channels * results  # the depthwise part is not for tensor cores
    return Cost(read=2 * (pixels * channels + weights), write=2 * pixels * results, flops=flops, dtype="bf16")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A block of MobileNet; input and output are 206 MB each.
        "bench": {"images": 64, "side": 112, "channels": 128, "results": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; vectors of 8 want channels and results in multiples of 8
        "test": {"images": 2, "side": 19, "channels": 72, "results": 40, "dtype": "float16"},
    },
    tolerance=6e-3,  # between the two convolutions and at the end a rounding to bf16, each by 0.17% on average
)


@triton.jit
def taps_of(depthwise, row, channel, channels):
    """The three taps of one row of the filter, for all channels."""
    place, mask = depthwise + row * 3 * channels + channel, channel < channels
    return (
        tl.load(place, mask=mask, other=0.0).to(tl.float32)[None, :],
        tl.load(place + channels, mask=mask, other=0.0).to(tl.float32)[None, :],
        tl.load(place + 2 * channels, mask=mask, other=0.0).to(tl.float32)[None, :],
    )


@triton.jit
def shifted(x, row, column, channel, side, channels):
    """One row of this program's image, for columns that may begin or end outside, where there are zeros."""
    inside = (column >= 0) & (column < side) & (row < side)
    start = tl.program_id(1).to(tl.int64) * side * side * channels
    place = x + start + (row * side + column)[:, None] * channels + channel[None, :]
    return tl.load(place, mask=inside[:, None] & (channel < channels)[None, :], other=0.0).to(tl.float32)


@triton.jit
def filter_planes(x, depthwise, middle, side, channels, P: tl.constexpr, C: tl.constexpr, STAGES: tl.constexpr):
    column, channel = tl.program_id(0) * P + tl.arange(0, P), tl.arange(0, C)
    a0, a1, a2 = taps_of(depthwise, 0, channel, channels)
    b0, b1, b2 = taps_of(depthwise, 1, channel, channels)
    c0, c1, c2 = taps_of(depthwise, 2, channel, channels)
    done, here = tl.zeros((P, C), tl.float32), tl.zeros((P, C), tl.float32)
    out = middle + tl.program_id(1).to(tl.int64) * side * side * channels
    # Each row is read once: it ends the result of the row above, goes into its own, and begins that of the row below.
    for row in tl.range(0, side + 1, num_stages=STAGES):
        left = shifted(x, row, column - 1, channel, side, channels)
        same = shifted(x, row, column, channel, side, channels)
        right = shifted(x, row, column + 1, channel, side, channels)
        total = done + left * c0 + same * c1 + right * c2
        mask = ((column < side) & (row > 0))[:, None] & (channel < channels)[None, :]
        place = out + ((row - 1) * side + column)[:, None] * channels + channel[None, :]
        tl.store(place, total.to(middle.dtype.element_ty), mask=mask)
        done, here = here + left * b0 + same * b1 + right * b2, left * a0 + same * a1 + right * a2


def strip(x: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid (strips of columns, images), and the options of a program that walks down a strip with all channels."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    options = {"P": 32, "C": max(triton.next_power_of_2(x.shape[3]), 16), "STAGES": 4 if roomy else 2, "num_warps": 8}
    return (triton.cdiv(x.shape[2], options["P"]), len(x)), options


def prepare(x: Tensor, depthwise: Tensor, pointwise: Tensor) -> Step:
    images, side, _, channels = x.shape
    middle, out = torch.empty_like(x), x.new_empty(images * side * side, pointwise.shape[1])
    grid, options = strip(x)

    def step() -> Tensor:
        filter_planes[grid](x, depthwise, middle, side, channels, **options)
        torch.mm(middle.view(-1, channels), pointwise, out=out)
        return out.view(images, side, side, -1)

    return step
