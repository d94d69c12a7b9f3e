"""Rows of 64 samples and the 128 before them, times a band of taps as a matrix: the filter runs on tensor cores."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch10.baseline_fir_toeplitz import TAPS
from ch10.baseline_fir_toeplitz import workload as workload
from common.python.workload import Step

SIDE = 64  # samples in a row
ROWS = 128  # of a program


@triton.jit
def fir(x, band, out, n, TAPS: tl.constexpr, SIDE: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, SIDE)
    here = row[:, None] * SIDE + column[None, :]
    channel = tl.program_id(1).to(tl.int64) * n
    total = tl.zeros((ROWS, SIDE), tl.float32)
    for back in tl.static_range(0, TAPS + SIDE, SIDE):  # this row, the row before, and the one before that
        at = here - back
        samples = tl.load(x + channel + at, mask=(at >= 0) & (at < n), other=0.0)
        taps = tl.load(band + (back + column)[:, None] * SIDE + column[None, :])
        total = tl.dot(samples, taps, total)
    tl.store(out + channel + here, total.to(out.dtype.element_ty), mask=here < n)


def prepare(x: Tensor, taps: Tensor) -> Step:
    (channels, n), out = x.shape, torch.empty_like(x)
    # A sample i of the row that is `back` before, and column c of this row, are back + c - i samples apart.
    column = torch.arange(SIDE, device=x.device)
    back = torch.arange(0, TAPS + SIDE, SIDE, device=x.device)
    apart = back[:, None, None] + column[None, None, :] - column[None, :, None]
    inside = (apart >= 0) & (apart < TAPS)
    band = (taps[apart.clamp(0, TAPS - 1)] * inside).contiguous()
    grid = triton.cdiv(n, ROWS * SIDE), channels

    def step() -> Tensor:
        fir[grid](x, band, out, n, TAPS, SIDE, ROWS, num_warps=4)
        return out

    return step
