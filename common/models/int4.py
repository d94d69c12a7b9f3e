"""Weights of four bits: integers from -7 to 7, and for each 128 of a row one scale that they are multiplied with.

`on_int4_grid` rounds a matrix to such weights and gives it back in its own dtype, which holds them exactly: a scale has
five significant bits and an integer three, and bf16 has eight. So a program that reads wide weights and one that reads
four bits compute with the same numbers, and one reference serves both. What the rounding costs a model in accuracy is
another question.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

GROUP, LARGEST, SCALE_BITS = 128, 7, 5


def grouped(matrix: Tensor) -> Tensor:
    """A matrix (rows, columns) as (rows, groups, 128); zeros fill the last group."""
    return F.pad(matrix, (0, -matrix.shape[1] % GROUP)).unflatten(1, (-1, GROUP))


def scales_of(matrix: Tensor) -> Tensor:
    """Scales (rows, groups), float32: the largest magnitude over 7, rounded up to five significant bits.

    The largest still rounds to 7, so the scales of a matrix that lies on the grid are its own. A group of nothing but
    zeros has none.
    """
    mantissas, exponents = torch.frexp(grouped(matrix).abs().amax(2).float() / LARGEST)
    return torch.ldexp((mantissas * 2**SCALE_BITS).ceil() / 2**SCALE_BITS, exponents)


def codes_of(matrix: Tensor, scales: Tensor) -> Tensor:
    """Integers -7..7 (rows, groups, 128), float32, which times the scales are nearest to the matrix."""
    return (grouped(matrix) / scales[..., None]).round()


def on_int4_grid(matrix: Tensor) -> Tensor:
    """The matrix rounded to four bits a number, in its own dtype."""
    scales = scales_of(matrix)
    rounded = codes_of(matrix, scales).mul_(scales[..., None]).flatten(1)
    return rounded[:, : matrix.shape[1]].to(matrix.dtype, copy=True)
