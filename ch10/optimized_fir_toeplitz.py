"""Rows of samples times a band of taps on tensor cores; programs keep the band, and TMA brings later rows ahead."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch10.baseline_fir_toeplitz import TAPS
from ch10.baseline_fir_toeplitz import workload as workload
from common.python.workload import Step

SIDE = 64  # samples in a row
ROWS = 64  # of a tile
PLACES, STAGES = 2, 3  # programs of an SM; each has the rows of two more tiles on their way


@triton.jit
def rows_at(x, n, channel, row, WHOLE: tl.constexpr, SIDE: tl.constexpr, ROWS: tl.constexpr):
    """A tile of samples, with zeros before the first one and behind the last one."""
    if WHOLE:
        samples = x.load([channel, row, 0]).reshape(ROWS, SIDE)
    else:
        at = (row + tl.arange(0, ROWS))[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
        samples = tl.load(x + channel.to(tl.int64) * n + at, mask=(at >= 0) & (at < n), other=0.0)
    return samples


@triton.jit
def fir(
    x, band, out, n, tiles, across, WHOLE: tl.constexpr, SIDE: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr
):
    line = tl.arange(0, SIDE)
    at = line[:, None] * SIDE + line[None, :]
    here, before, last = tl.load(band + at), tl.load(band + SIDE * SIDE + at), tl.load(band + 2 * SIDE * SIDE + at)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        channel, row = tile // across, tile % across * ROWS
        total = tl.dot(rows_at(x, n, channel, row, WHOLE, SIDE, ROWS), here)
        total = tl.dot(rows_at(x, n, channel, row - 1, WHOLE, SIDE, ROWS), before, total)
        total = tl.dot(rows_at(x, n, channel, row - 2, WHOLE, SIDE, ROWS), last, total)
        filtered = total.to(here.dtype)
        if WHOLE:
            out.store([channel, row, 0], filtered.reshape(1, ROWS, SIDE))
        else:
            place = (row + tl.arange(0, ROWS))[:, None] * SIDE + line[None, :]
            tl.store(out + channel.to(tl.int64) * n + place, filtered, mask=place < n)


def prepare(x: Tensor, taps: Tensor) -> Step:
    (channels, n), out = x.shape, torch.empty_like(x)
    # A sample i of the row that is `back` before, and column c of this row, are back + c - i samples apart.
    column = torch.arange(SIDE, device=x.device)
    back = torch.arange(0, TAPS + SIDE, SIDE, device=x.device)
    apart = back[:, None, None] + column[None, None, :] - column[None, :, None]
    inside = (apart >= 0) & (apart < TAPS)
    band = (taps[apart.clamp(0, TAPS - 1)] * inside).contiguous()
    across = triton.cdiv(n, ROWS * SIDE)
    most = 3 if triton.knobs.runtime.interpret else PLACES * torch.cuda.get_device_properties().multi_processor_count
    grid = (min(channels * across, most),)
    source, target, whole = x, out, n % SIDE == 0
    if whole:  # TMA sees rows of 64 samples, so other lengths are read by masked loads
        box = [1, ROWS, SIDE]
        source, target = (TensorDescriptor.from_tensor(side.view(channels, -1, SIDE), box) for side in (x, out))

    def step() -> Tensor:
        fir[grid](source, band, target, n, channels * across, across, whole, SIDE, ROWS, STAGES, num_warps=4)
        return out

    return step
