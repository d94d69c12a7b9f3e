"""torch.compile of the casts as torch writes them, around the same cuBLAS fp8 products: what fp8 libraries lean on.

In its default mode: `max-autotune`, which times Triton's fp8 products as well, took more than a minute to compile.
"""

import torch
from torch import Tensor

from ch19.baseline_fp8_linear_training import casting_errors, noise_like
from ch19.baseline_fp8_linear_training import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89)
LARGEST = torch.finfo(torch.float8_e4m3fn).max


def cast(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and the power of two that each row of them is to be multiplied with [rows, 1]."""
    magnitudes = x.abs().amax(dim=1, keepdim=True).float()
    scales = (magnitudes / LARGEST).clamp(min=2.0**-100).log2().ceil().exp2()
    return (x.float() / scales).to(torch.float8_e4m3fn).contiguous(), scales


def cast_back(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes times scales: cast along the rows, and along the columns."""
    (along, by_row), (across, by_column) = cast(x), cast(x.T)
    return along.float() * by_row, (across.float() * by_column).T


def product(a: Tensor, b: Tensor) -> Tensor:
    (codes_a, scales_a), (codes_b, scales_b) = cast(a), cast(b)
    return torch._scaled_mm(codes_a, codes_b.T, scales_a, scales_b.T, out_dtype=a.dtype)


def products(x: Tensor, weight: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    return product(x, weight), product(slope, weight.T), product(slope.T, x.T)


def prepare(x: Tensor, weight: Tensor, slope: Tensor) -> Metered:
    compiled = torch.compile(products, fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, ...]:
        return compiled(x, weight, slope)

    return Metered(step, lambda: casting_errors(cast_back, *noise_like(x, weight, slope)))
