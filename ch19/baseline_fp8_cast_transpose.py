"""The fp8 cast as one writes it: amax, scale, clamp, cast, and then a transposed copy for the weight's gradient."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Metered, Step, Workload

LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448


def inputs(draw: Draw, rows: int, columns: int) -> Inputs:
    """Activations, and the scale that an earlier step's amax gave: a power of two; the largest one saturates some."""
    exponent = draw.integers(1, low=5, high=8)
    return {"x": draw.normal(rows, columns, dtype=torch.bfloat16), "scale": torch.exp2(exponent.float())}


def codes(x: Tensor, scale: Tensor) -> Tensor:
    """x * scale in e4m3. A bf16 number times a power of two is exact, so that only the cast rounds."""
    return (x.to(scale.dtype) * scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def reference(x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    # float64 to fp8 may go by way of fp32, which holds these products exactly
    cast = codes(x.float(), scale.float())
    return cast.view(torch.uint8), cast.T.contiguous().view(torch.uint8), x.abs().max()


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda rows, columns: Cost(read=2 * rows * columns, write=2 * rows * columns),
    sizes={"bench": {"rows": 32768, "columns": 8192}, "test": {"rows": 197, "columns": 331}},
    tolerance=1e-6,  # of the amax; codes are compared as bytes, and must be the same
)


def metered(step: Step, x: Tensor, scale: Tensor) -> Metered:
    """What the formula's cast loses, beside the step: the normwise relative error of codes / scale."""

    def metrics() -> dict[str, float]:
        back = codes(x, scale).float() / scale
        return {"quantisation error": float((back - x.float()).norm() / x.float().norm())}

    return Metered(step, metrics)


def prepare(x: Tensor, scale: Tensor) -> Metered:
    transposed = x.new_empty(x.shape[1], x.shape[0], dtype=torch.float8_e4m3fn)

    def step() -> tuple[Tensor, ...]:
        amax = x.abs().max().float()
        cast = codes(x, scale)
        transposed.copy_(cast.T)
        return cast.view(torch.uint8), transposed.view(torch.uint8), amax

    return metered(step, x, scale)
