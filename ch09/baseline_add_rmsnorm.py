"""Residual add, widening, mean square and two scalings as separate calls: seven passes, most of them over fp32."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

EPSILON = 1e-5


def inputs(draw: Draw, rows: int, columns: int) -> Inputs:
    return {
        "x": draw.normal(rows, columns, dtype=torch.bfloat16),
        "residual": draw.normal(rows, columns, dtype=torch.bfloat16),
        "gain": draw.uniform(columns, low=0.75, high=1.25, dtype=torch.bfloat16),
    }


def reference(x: Tensor, residual: Tensor, gain: Tensor) -> tuple[Tensor, ...]:
    total = x + residual
    return total * (total.square().mean(dim=1, keepdim=True) + EPSILON).rsqrt() * gain, total


workload = Workload(
    inputs=inputs,
    reference=reference,
    # bf16: x and residual in, the normed rows and their sum out
    cost=lambda rows, columns: Cost(read=2 * (2 * rows + 1) * columns, write=4 * rows * columns),
    sizes={"bench": {"rows": 32768, "columns": 4096}, "test": {"rows": 5, "columns": 1283}},
    tolerance=8e-3,  # up to three roundings to bf16, each by 0.17% on average; one element may be off by ten times this
)


def prepare(x: Tensor, residual: Tensor, gain: Tensor) -> Step:
    total, out = torch.empty_like(x), torch.empty_like(x)

    def step() -> tuple[Tensor, ...]:
        wide = torch.add(x, residual, out=total).float()
        scale = wide.square().mean(dim=1, keepdim=True).add_(EPSILON).rsqrt_()
        return torch.mul(wide.mul_(scale).to(x.dtype), gain, out=out), total

    return step
