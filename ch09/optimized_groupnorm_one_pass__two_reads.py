"""One pass leaves each chunk's mean and squared deviations, which combine exactly: two reads of a group, not three."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_groupnorm_one_pass import EPSILON, TOGETHER, chunk_of, chunks
from ch09.baseline_groupnorm_one_pass import workload as workload
from common.python.workload import Step


@triton.jit
def measure(x, means, squares, plane_size, BLOCK: tl.constexpr):
    values, mask, _ = chunk_of(x, plane_size, BLOCK)
    mean = tl.sum(values, axis=0) / tl.minimum(plane_size - tl.program_id(0) * BLOCK, BLOCK)
    away = tl.where(mask, values - mean, 0.0)  # the chunk is still in registers
    part = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(means + part, mean)
    tl.store(squares + part, tl.sum(away * away, axis=0))


@triton.jit
def normalize(
    x,
    means,
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
    parts, total = planes_a_group * tl.num_programs(0), planes_a_group * plane_size
    part = tl.arange(0, PARTS)
    first = tl.program_id(1) // planes_a_group * parts
    counts = tl.minimum(plane_size - part % tl.num_programs(0) * BLOCK, BLOCK).to(tl.float32)
    counts = tl.where(part < parts, counts, 0.0)
    chunk_means = tl.load(means + first + part, mask=part < parts, other=0.0)
    mean = tl.sum(counts * chunk_means, axis=0) / total
    # Deviations from the chunk's own mean, and for each value what that mean is off by.
    own = tl.load(squares + first + part, mask=part < parts, other=0.0)
    away = chunk_means - mean
    scale = tl.rsqrt(tl.sum(own + counts * away * away, axis=0) / total + epsilon)
    channel = tl.program_id(1) % channels
    factor = tl.load(gain + channel).to(tl.float32) * scale
    values, mask, at = chunk_of(x, plane_size, BLOCK)
    tl.store(out + at, (values - mean) * factor + tl.load(shift + channel).to(tl.float32), mask=mask)


def prepare(x: Tensor, gain: Tensor, shift: Tensor) -> Step:
    channels, size = x.shape[1], x.shape[2] * x.shape[3]
    grid, options, with_parts = chunks(x)
    means, squares = (x.new_empty(grid[0] * grid[1], dtype=torch.float32) for _ in range(2))
    out = torch.empty_like(x)

    def step() -> Tensor:
        measure[grid](x, means, squares, size, **options)
        normalize[grid](x, means, squares, gain, shift, out, size, TOGETHER, channels, EPSILON, **with_parts)
        return out

    return step
