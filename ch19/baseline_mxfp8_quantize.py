"""The MX cast as one writes it: magnitudes, maxima, exponents, division, clamp and cast are passes over memory."""

import torch
from torch import Tensor

from common.models.formats import BIAS, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

BLOCK = 32  # numbers that share an exponent
LARGEST, TOP = torch.finfo(torch.float8_e4m3fn).max, 8  # 448, and its exponent


def inputs(draw: Draw, rows: int, blocks: int) -> Inputs:
    """Rows of e4m3 numbers times a power of two: an exact cast, but for those over 448 / 512 of the next power."""
    numbers = draw.normal(rows, blocks, BLOCK).to(torch.float8_e4m3fn).float()
    exponents = draw.integers(rows, blocks, 1, low=-20, high=20)
    return {"x": (numbers * torch.exp2(exponents.float())).to(torch.bfloat16).view(rows, blocks * BLOCK)}


def cast(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and shared exponents, both as bytes; by the OCP MX specification, version 1.0, section 6.3."""
    grouped = x.float().view(len(x), -1, BLOCK)
    amax = grouped.abs().amax(-1, keepdim=True)
    exponent = torch.floor(torch.log2(amax)).sub(TOP).clamp(min=-BIAS, max=BIAS)
    codes = (grouped / torch.exp2(exponent)).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return codes.view(x.shape).view(torch.uint8), (exponent + BIAS).squeeze(-1).to(torch.uint8)


workload = Workload(
    inputs=inputs,
    reference=lambda x: cast(x.float()),  # bf16 numbers; fp32 divides them by powers of two exactly
    cost=lambda rows, blocks: Cost(read=2 * BLOCK * rows * blocks, write=(BLOCK + 1) * rows * blocks),
    sizes={"bench": {"rows": 16384, "blocks": 256}, "test": {"rows": 197, "blocks": 11}},
    tolerance=0.0,  # bytes
)


def prepare(x: Tensor) -> Metered:
    def step() -> tuple[Tensor, Tensor]:
        return cast(x)

    return metered(step, "e4m3", BLOCK)
