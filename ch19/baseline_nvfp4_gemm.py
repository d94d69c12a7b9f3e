"""Numbers that need four bits and a scale for sixteen are kept and multiplied as bf16: four times the bytes."""

import torch
from torch import Tensor

from common.models.formats import decoded
from common.python.workload import Cost, Draw, Step, Workload

GROUP = 16  # neighbours along k that share a scale


def dequantised(codes: Tensor, scales: Tensor) -> Tensor:
    """bf16 [rows, k] of codes [rows, k / 2], the even one in the low bits, and of the bits of e4m3 scales.

    It is exact: a code has two significant bits, a scale four.
    """
    values = decoded(torch.stack((codes & 15, codes >> 4), dim=2).flatten(1), "e2m1", torch.bfloat16)
    scale = decoded(scales, "e4m3", torch.bfloat16)
    return (values.unflatten(1, (-1, GROUP)) * scale[:, :, None]).flatten(1)


def blocked(scales: Tensor) -> Tensor:
    """Scales [rows, groups] in the order of the tensor cores, zeros filling up.

    512 bytes are 128 rows by 4 groups: 16 bytes have 4 groups of row r, of r + 32, r + 64 and r + 96.
    """
    rows, groups = scales.shape
    whole = scales.new_zeros(-(-rows // 128) * 128, -(-groups // 4) * 4)
    whole[:rows, :groups] = scales
    return whole.view(len(whole) // 128, 4, 32, -1, 4).permute(0, 3, 2, 1, 4).contiguous()


def inputs(draw: Draw, m: int, n: int, k: int) -> dict[str, Tensor]:
    """Both operands twice, as bf16 and as NVFP4: the very same numbers, so that all sides share one answer."""
    made = {}
    for name, rows in (("a", m), ("b", n)):
        codes = draw.integers(rows, k // 2, high=256, dtype=torch.uint8)
        scales = draw.integers(rows, k // GROUP, low=0x30, high=0x41, dtype=torch.uint8)  # 0.5 to 2, as e4m3
        made |= {name: dequantised(codes, scales), f"{name}_codes": codes, f"{name}_scales": blocked(scales)}
    return made


workload = Workload(
    inputs=inputs,
    reference=lambda a, a_codes, a_scales, b, b_codes, b_scales: a @ b.T,
    cost=lambda m, n, k: Cost(flops=2 * m * n * k, dtype="fp4", read=(m + n) * k * 9 // 16, write=2 * m * n),
    # k is a multiple of 64, which one instruction takes, but not of the 256 of a tile.
    sizes={"bench": {"m": 8192, "n": 8192, "k": 8192}, "test": {"m": 397, "n": 336, "k": 576}},
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


def prepare(a: Tensor, a_codes: Tensor, a_scales: Tensor, b: Tensor, b_codes: Tensor, b_scales: Tensor) -> Step:
    out = a.new_empty(len(a), len(b))

    def step() -> Tensor:
        return torch.mm(a, b.T, out=out)

    return step
