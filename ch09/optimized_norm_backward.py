"""Each program walks over rows held in registers: one pass gives x's gradient and a partial sum of the gain's."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_norm_backward import workload as workload
from common.python.workload import Step

WIDTH = 32  # columns of a program that adds up partial sums: 128 bytes


@triton.jit
def backward_rows(x, slope, gain, scale, to_x, partials, rows, columns, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < columns
    gains = tl.load(gain + at, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    stride, next_factor = columns.to(tl.int64), tl.load(scale + tl.program_id(0))
    # Four stages: while a row is reduced, the next three are on their way.
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=4):
        start = row * stride
        factor = next_factor
        next_factor = tl.load(scale + tl.minimum(row + tl.num_programs(0), rows - 1))
        normed = tl.load(x + start + at, mask=mask, other=0.0).to(tl.float32) * factor
        s = tl.load(slope + start + at, mask=mask, other=0.0).to(tl.float32)
        total += s * normed
        inner = s * gains
        mean = tl.sum(inner * normed, axis=0) / columns
        tl.store(to_x + start + at, (inner - normed * mean) * factor, mask=mask)
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()  # the second kernel starts while the last programs end
    tl.store(partials + tl.program_id(0).to(tl.int64) * columns + at, total, mask=mask)


@triton.jit
def add_partials(partials, to_gain, programs, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr):
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    if EARLY:
        tl.extra.cuda.gdc_wait()  # until the first kernel's stores are there
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, programs, ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < programs)[:, None] & (column < columns)[None, :]
        total += tl.load(partials + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.store(to_gain + column, tl.sum(total, axis=0), mask=column < columns)


def prepare(x: Tensor, slope: Tensor, gain: Tensor, scale: Tensor) -> Step:
    rows, columns = x.shape
    to_x, to_gain = torch.empty_like(x), torch.empty_like(gain)
    block = triton.next_power_of_2(columns)
    warps = min(max(block // 256, 1), 16)  # eight elements of each tensor a thread: one load of 16 bytes
    # Two programs an SM, all resident from the start. In the interpreter three in all, so that each has several rows.
    interpreted = triton.knobs.runtime.interpret
    most = 3 if interpreted else 2 * torch.cuda.get_device_properties().multi_processor_count
    early = not interpreted and torch.cuda.get_device_capability()[0] >= 9  # programmatic launches begin with Hopper
    programs = min(most, rows)
    partials = x.new_empty(programs, columns, dtype=torch.float32)
    options = {"ROWS": 128, "WIDTH": WIDTH, "EARLY": early, "num_warps": 8, "launch_pdl": early}

    def step() -> tuple[Tensor, ...]:
        grid = (programs,)
        backward_rows[grid](x, slope, gain, scale, to_x, partials, rows, columns, block, early, num_warps=warps)
        grid = (triton.cdiv(columns, WIDTH),)
        add_partials[grid](partials, to_gain, programs, columns, **options)
        return to_x, to_gain

    return step
