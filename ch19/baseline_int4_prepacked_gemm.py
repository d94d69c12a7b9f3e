"""The int4 checkpoint is dequantised once to a bf16 weight: cuBLAS then reads two bytes per weight, for few rows."""

import torch
from torch import Tensor

from common.models.int4 import on_int4_grid
from common.python.workload import Cost, Draw, Metered, Step, Workload

GROUP = 128  # features that share a scale


def inputs(draw: Draw, rows: int, features: int, outputs: int) -> dict[str, Tensor]:
    """Activations and the checkpoint: codes [outputs, features / 2], two a byte, the even feature in the low bits.

    A weight is (code - 8) * scale, with scales [features / 128, outputs]. They have five significant bits, and a code
    less 8 has three, so that the product is exact in bf16 and all sides share one answer.
    """
    groups = features // GROUP
    mantissa = draw.integers(groups, outputs, low=16, high=32)
    exponent = draw.integers(groups, outputs, low=-15, high=-12)
    return {
        "x": draw.normal(rows, features, dtype=torch.bfloat16),
        "codes": draw.integers(outputs, features // 2, high=256, dtype=torch.uint8),
        "scales": torch.ldexp(mantissa.float(), exponent).bfloat16(),
    }


def nibbles(codes: Tensor) -> Tensor:
    """The codes one a byte [outputs, features]."""
    return torch.stack((codes & 15, codes >> 4), dim=2).flatten(1)


def dequantised(codes: Tensor, scales: Tensor) -> Tensor:
    """The weight [outputs, features], in the type of the scales."""
    weight = nibbles(codes).unflatten(1, (-1, GROUP)).to(scales.dtype)
    return weight.sub_(8).mul_(scales.T[:, :, None]).flatten(1)


workload = Workload(
    inputs=inputs,
    reference=lambda x, codes, scales: x @ dequantised(codes, scales).T,
    cost=lambda rows, features, outputs: Cost(
        read=outputs * features // 2 + 2 * (outputs * features // GROUP + rows * features),
        write=2 * rows * outputs,
        flops=2 * rows * features * outputs,
        dtype="bf16",
        items=rows,
        unit="rows",
    ),
    sizes={
        # The gate and up projections of a 70B Llama: 235 MB of codes, almost five times the L2 cache of an H200.
        "bench": {"rows": 16, "features": 8192, "outputs": 57344},
        "test": {"rows": 13, "features": 384, "outputs": 328},  # three groups, and 41 eights of outputs
    },
    tolerance=4e-3,  # of rounding the output to bf16
    frozen=("codes", "scales"),
)


def rounding_error(x: Tensor, weight: Tensor) -> float:
    """What four bits a weight cost in accuracy, whatever multiplies with them: normwise, of the output."""
    full, rounded = (x.float() @ each.float().T for each in (weight, on_int4_grid(weight)))
    return float((rounded - full).norm() / full.norm())


def metered(step: Step, x: Tensor, outputs: int) -> Metered:
    """The step, and the error with normal weights rounded to a checkpoint like this one, of 4096 outputs at most."""
    generator, shape = torch.Generator(x.device).manual_seed(0), (min(outputs, 4096), x.shape[1])

    def metrics() -> dict[str, float]:
        weight = torch.randn(shape, generator=generator, device=x.device).bfloat16()
        return {"quantisation error": rounding_error(x, weight)}

    return Metered(step, metrics)


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    weight, out = dequantised(codes, scales), x.new_empty(len(x), len(codes))

    def step() -> Tensor:
        return torch.mm(x, weight.T, out=out)

    return metered(step, x, len(codes))
