"""The depthwise tile goes straight to the tensor cores, which does not pay on an H200: registers run out."""

import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_depthwise_pointwise_fusion import shifted, strip, taps_of
from ch09.baseline_depthwise_pointwise_fusion import workload as workload
from common.python.workload import Step


@triton.jit
def filter_and_mix(
    x,
    depthwise,
    pointwise,
    out,
    side,
    channels,
    results,
    P: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
    STAGES: tl.constexpr,
):
    column, channel = tl.program_id(0) * P + tl.arange(0, P), tl.arange(0, C)
    a0, a1, a2 = taps_of(depthwise, 0, channel, channels)
    b0, b1, b2 = taps_of(depthwise, 1, channel, channels)
    c0, c1, c2 = taps_of(depthwise, 2, channel, channels)
    result = tl.arange(0, N)  # all of them: what is computed for a pixel and channel is used here and nowhere else
    known = (channel < channels)[:, None] & (result < results)[None, :]
    mix = tl.load(pointwise + channel[:, None] * results + result[None, :], mask=known, other=0.0)
    done, here = tl.zeros((P, C), tl.float32), tl.zeros((P, C), tl.float32)
    out += tl.program_id(1).to(tl.int64) * side * side * results
    # Each row is read once: it ends the result of the row above, goes into its own, and begins that of the row below.
    for row in tl.range(0, side + 1, num_stages=STAGES):
        left = shifted(x, row, column - 1, channel, side, channels)
        same = shifted(x, row, column, channel, side, channels)
        right = shifted(x, row, column + 1, channel, side, channels)
        total = done + left * c0 + same * c1 + right * c2
        mixed = tl.dot(total.to(x.dtype.element_ty), mix)
        mask = ((column < side) & (row > 0))[:, None] & (result < results)[None, :]
        place = out + ((row - 1) * side + column)[:, None] * results + result[None, :]
        tl.store(place, mixed.to(out.dtype.element_ty), mask=mask)
        done, here = here + left * b0 + same * b1 + right * b2, left * a0 + same * a1 + right * a2


def prepare(x: Tensor, depthwise: Tensor, pointwise: Tensor) -> Step:
    (images, side, _, channels), results = x.shape, pointwise.shape[1]
    out = x.new_empty(images, side, side, results)
    grid, options = strip(x)
    options["N"] = max(triton.next_power_of_2(results), 16)

    def step() -> Tensor:
        filter_and_mix[grid](x, depthwise, pointwise, out, side, channels, results, **options)
        return out

    return step
