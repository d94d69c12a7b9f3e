"""Formats of 4 to 8 bits: codes to numbers and back by definition, as a check of what kernels compute."""

import torch
from torch import Tensor

from common.python.workload import Metered, Step

# Bits of the exponent and of the fraction, below a sign, and how many of the last codes are no finite numbers.
FORMATS = {"e4m3": (4, 3, 1), "e5m2": (5, 2, 4), "e2m1": (2, 1, 0), "e3m2": (3, 2, 0)}
BIAS = 127  # of E8M0, a byte that holds an exponent and nothing else


def sizes(name: str) -> Tensor:
    """The finite numbers that are not negative, float64; each one's index is its code."""
    bits, fraction_bits, others = FORMATS[name]
    code = torch.arange(2 ** (bits + fraction_bits) - others)
    exponent, fraction = code >> fraction_bits, (code % 2**fraction_bits).double() / 2**fraction_bits
    return torch.ldexp(fraction + (exponent > 0), exponent.clamp(min=1) + 1 - 2 ** (bits - 1))


def decoded(codes: Tensor, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """The numbers of uint8 codes; infinity becomes NaN."""
    positive = torch.nn.functional.pad(sizes(name), (0, FORMATS[name][2]), value=torch.nan)
    return torch.cat((positive, -positive)).to(codes.device, dtype)[codes.int()]


def encoded(numbers: Tensor, name: str) -> Tensor:
    """The uint8 codes of the nearest numbers; ties go to the even code, and too large numbers to the largest."""
    finite, size = sizes(name).to(numbers.device), numbers.double().abs()
    middles = (finite[1:] + finite[:-1]) / 2
    code = torch.bucketize(size, middles)
    code += (torch.bucketize(size, middles, right=True) > code) & (code % 2 == 1)
    return (code + numbers.signbit() * 2 ** sum(FORMATS[name][:2])).to(torch.uint8)


def exponents(blocks: Tensor, name: str) -> Tensor:
    """E8M0 codes of the scales of blocks (..., numbers), by the OCP MX specification 1.0, section 6.3."""
    top = torch.frexp(sizes(name)[-1]).exponent
    biased = torch.frexp(blocks.double().abs().amax(-1)).exponent - top.to(blocks.device) + BIAS
    return (biased * (blocks != 0).any(-1)).clamp(0, 2 * BIAS).to(torch.uint8)


def scales(codes: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """The numbers of E8M0 codes."""
    return torch.exp2(codes.to(dtype) - BIAS)


def rounding_error(name: str, block: int) -> float:
    """Normwise relative error of casting normal noise with one shared exponent for each `block` neighbours."""
    noise = torch.randn(2**16 // block, block, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scale = scales(exponents(noise, name))[:, None]
    return ((decoded(encoded(noise / scale, name), name) * scale - noise).norm() / noise.norm()).item()


def metered(step: Step, name: str, block: int) -> Metered:
    return Metered(step, lambda: {"quantisation error": rounding_error(name, block)})
