"""RMSNorm's backward as its formula reads: ten calls, most of which read or write fp32 tensors of the input's size."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

EPSILON = 1e-5


def inputs(draw: Draw, rows: int, columns: int) -> Inputs:
    x = draw.normal(rows, columns, dtype=torch.bfloat16)
    norms = torch.linalg.vector_norm(x, dim=1, dtype=torch.float32)
    return {
        "x": x,
        "slope": draw.normal(rows, columns, dtype=torch.bfloat16),
        "gain": draw.uniform(columns, low=0.75, high=1.25, dtype=torch.bfloat16),
        "scale": (norms.square() / columns + EPSILON).rsqrt(),  # of each row, kept by the forward pass
    }


def reference(x: Tensor, slope: Tensor, gain: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    normed, inner = x * scale[:, None], slope * gain
    to_x = (inner - normed * (inner * normed).mean(dim=1, keepdim=True)) * scale[:, None]
    return to_x, (slope * normed).sum(dim=0)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda rows, columns: Cost(
        read=2 * (2 * rows * columns + columns) + 4 * rows, write=2 * (rows * columns + columns)
    ),
    sizes={"bench": {"rows": 32768, "columns": 4096}, "test": {"rows": 37, "columns": 1283}},
    tolerance=8e-3,  # up to three roundings to bf16, each by 0.17% on average
)


def prepare(x: Tensor, slope: Tensor, gain: Tensor, scale: Tensor) -> Step:
    to_x, to_gain = torch.empty_like(x), torch.empty_like(gain)

    def step() -> tuple[Tensor, ...]:
        normed = x * scale[:, None]  # fp32, as scale is
        to_gain.copy_((slope * normed).sum(dim=0))
        inner = slope * gain
        mean = (inner * normed).mean(dim=1, keepdim=True)
        to_x.copy_(torch.sub(inner, normed.mul_(mean)).mul_(scale[:, None]))
        return to_x, to_gain

    return step
