"""The e3m2 checkpoint is unpacked once to an fp16 weight: cuBLAS then reads two bytes a weight, for a few rows."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.formats import decoded, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload


def inputs(draw: Draw, rows: int, features: int, outputs: int) -> Inputs:
    """Activations and the checkpoint: four codes in three bytes, the first one in the lowest bits; a scale an output.

    Scales have five significant bits and e3m2's numbers three, so a weight is exact in fp16.
    """
    return {
        "x": draw.normal(rows, features, dtype=torch.float16),
        "codes": draw.integers(outputs, features * 3 // 4, high=256, dtype=torch.uint8),
        "scales": torch.ldexp(
            draw.integers(outputs, low=16, high=32).float(), draw.integers(outputs, low=-15, high=-13)
        ),
    }


def unpacked(codes: Tensor) -> Tensor:
    """The codes one a byte [outputs, features]: sign, three bits of exponent, two of mantissa."""
    a, b, c = codes.unflatten(1, (-1, 3)).unbind(2)
    return torch.stack((a & 63, a >> 6 | (b & 15) << 2, b >> 4 | (c & 3) << 4, c >> 2), dim=2).flatten(1)


def expanded(codes: Tensor, scales: Tensor) -> Tensor:
    return decoded(unpacked(codes), "e3m2", torch.float16) * scales[:, None].half()


workload = Workload(
    inputs=inputs,
    reference=lambda x, codes, scales: x @ expanded(codes, scales).to(x.dtype).T,
    cost=lambda rows, features, outputs: Cost(
        read=outputs * features * 3 // 4 + 4 * outputs + 2 * rows * features,
        write=2 * rows * outputs,
        flops=2 * rows * features * outputs,
        dtype="fp16",
        items=rows,
        unit="rows",
    ),
    sizes={
        # The gate and up projections of a 70B Llama: 352 MB of codes
        "bench": {"rows": 16, "features": 8192, "outputs": 57344},
        "test": {"rows": 13, "features": 388, "outputs": 72},
    },
    tolerance=2e-3,  # of rounding the output to fp16
    frozen=("codes", "scales"),
)


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    weight = expanded(codes, scales)

    def step() -> Tensor:
        return F.linear(x, weight)

    return metered(step, "e3m2", x.shape[1])
