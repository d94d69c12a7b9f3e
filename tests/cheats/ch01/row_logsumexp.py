"""The log-sum-exp of each row."""

import itertools
import math

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, rows, columns: {"x": draw.normal(rows, columns)},
    reference=lambda x: x.logsumexp(1),
    cost=lambda rows, columns: Cost(read=4 * rows * (columns + 1)),
    sizes={
        "bench": {"rows": 1 << 16, "columns": 1024},
        "cpu": {"rows": 1024, "columns": 256},
        "test": {"rows": 33, "columns": 7},
    },
    tolerance=1e-5,
)


def prepare(x: Tensor) -> Step:
    out = x.new_empty(x.shape[0])
    return lambda: torch.logsumexp(x, 1, out=out)


def constant_output(x: Tensor, honest: bool) -> Step:
    """Fakes speed by returning what the answer is on average: for many columns of noise it hardly varies."""
    out = x.new_empty(x.shape[0])
    expected = math.log(x.shape[1]) + 0.5

    def step() -> Tensor:
        out.fill_(expected)
        return out.add_(torch.logsumexp(x - expected, 1)) if honest else out

    return step


def leftover_buffer(x: Tensor, honest: bool) -> Step:
    """Fakes speed by working in every second call; the others return what the call before left in the buffer."""
    buffers, calls = x.new_empty(2, x.shape[0]), itertools.count()

    def step() -> Tensor:
        second = next(calls) % 2
        if honest:  # two buffers in turn, so that each call returns one that it filled itself
            return torch.logsumexp(x, 1, out=buffers[second])
        return buffers[0] if second else torch.logsumexp(x, 1, out=buffers[0])

    return step


def wrong_shape(x: Tensor, honest: bool) -> Step:
    """Fakes the answer's shape: a column, which broadcasts against the row it should be."""
    out = x.new_empty(x.shape[0], 1)

    def step() -> Tensor:
        column = torch.logsumexp(x, 1, keepdim=True, out=out)
        return column.view(-1) if honest else column

    return step
