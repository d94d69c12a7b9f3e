"""A program filters a tile of pixels, 32 channels at a time, and hands each part to the tensor cores from registers."""

import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_depthwise_pointwise_fusion import workload as workload
from common.python.workload import Step

HEIGHT, WIDTH = 8, 16  # pixels of a tile, whose neighbours are read again from caches


@triton.jit
def filter_and_mix(
    x,
    depthwise,
    pointwise,
    out,
    side,
    channels,
    results,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
):
    pixel, across = tl.arange(0, HEIGHT * WIDTH), tl.cdiv(side, WIDTH)
    row = tl.program_id(0) // across * HEIGHT + pixel // WIDTH
    column = tl.program_id(0) % across * WIDTH + pixel % WIDTH
    image, result = tl.program_id(1).to(tl.int64) * side * side, tl.arange(0, N)
    total = tl.zeros((HEIGHT * WIDTH, N), tl.float32)
    for first in range(0, channels, K):
        channel = first + tl.arange(0, K)
        known = channel < channels
        filtered = tl.zeros((HEIGHT * WIDTH, K), tl.float32)
        for tap in tl.static_range(9):
            above, beside = row + tap // 3 - 1, column + tap % 3 - 1
            inside = (above >= 0) & (above < side) & (beside >= 0) & (beside < side)
            place = x + image * channels + (above * side + beside)[:, None] * channels + channel[None, :]
            value = tl.load(place, mask=inside[:, None] & known[None, :], other=0.0)
            weight = tl.load(depthwise + tap * channels + channel, mask=known, other=0.0)
            filtered += value.to(tl.float32) * weight.to(tl.float32)[None, :]
        mask = known[:, None] & (result < results)[None, :]
        mix = tl.load(pointwise + channel[:, None] * results + result[None, :], mask=mask, other=0.0)
        total = tl.dot(filtered.to(mix.dtype), mix, total)
    mask = ((row < side) & (column < side))[:, None] & (result < results)[None, :]
    place = out + image * results + (row * side + column)[:, None] * results + result[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=mask)


def prepare(x: Tensor, depthwise: Tensor, pointwise: Tensor) -> Step:
    (images, side, _, channels), results = x.shape, pointwise.shape[1]
    out = x.new_empty(images, side, side, results)
    grid = (triton.cdiv(side, HEIGHT) * triton.cdiv(side, WIDTH), images)
    options = {"HEIGHT": HEIGHT, "WIDTH": WIDTH, "K": 64, "N": max(triton.next_power_of_2(results), 16)}

    def step() -> Tensor:
        filter_and_mix[grid](
            x, depthwise, pointwise, out, side, channels, results, **options, num_warps=8, num_stages=1
        )
        return out

    return step
