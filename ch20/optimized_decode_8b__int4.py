"""The matrices stay packed, eight weights to a word, and are widened in registers by the product that reads them once.

Inductor writes that product, and a token's step is captured and replayed. `packed` lays a group's 128 integers out so
that the eight in a word share a scale, and each eighth meets a run of activations.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from ch20.baseline_decode_8b import generation
from ch20.baseline_decode_8b import workload as workload
from common.models.caches import uncached
from common.models.codes import own
from common.models.decoder import Shape, Weights, draw_weights, forward
from common.models.graphs import replayable
from common.models.int4 import codes_of, grouped, on_int4_grid, scales_of
from common.python.requirements import needs
from common.python.workload import Draw, Metered

requires = needs(memory_gib=44, tools=["g++"])
Packed = tuple[Tensor, Tensor]  # words (rows, groups, 16), int32, and scales (rows, groups)


def compiled(code: FunctionType) -> Any:
    return torch.compile(own(code, __file__), options={"max_autotune_pointwise": True}, fullgraph=True, dynamic=False)


def packed(matrix: Tensor) -> Packed:
    """Integer 16 i + j of a group goes to bits 4 i to 4 i + 3 of its word j, 8 being added to make it positive."""
    scales = scales_of(matrix)
    nibbles = codes_of(matrix, scales).to(torch.int32).add_(8).unflatten(2, (8, 16))
    words = torch.zeros_like(nibbles[:, :, 0])
    for index in range(8):
        words |= nibbles[:, :, index] << 4 * index
    return words, scales.to(matrix.dtype)


def int4_linear(x: Tensor, matrix: Packed) -> Tensor:
    words, scales = matrix
    runs = grouped(x.flatten(0, -2)).unflatten(2, (8, 16)).float()  # (1, groups, 8, 16)
    total = -8 * sum(runs.unbind(2))  # the 8 that packing added to every integer
    for index in range(8):
        # Without a shift, a weight is 16, 256, ... times too large, which its activation makes up for: an AND, a
        # conversion and a multiplication are all that it takes. The sign bit must be shifted away from the last three.
        part, place = (words if index < 5 else words >> 20), 16 ** (index % 5)
        total = total + (part & 15 * place).float() * (runs[:, :, index] / place)
    return (total * scales[..., None]).sum((1, 2)).to(x.dtype).view(*x.shape[:-1], -1)


def rounding_error(shape: Shape, first: Tensor, rounded: Callable[[Tensor], Tensor]) -> float:
    """What rounding a block's matrices and the embedding costs in accuracy: normwise, of 16 tokens' hidden states."""
    one, tokens = replace(shape, layers=1, vocabulary=1024), torch.arange(16, device=first.device)[None]

    def states(keep: Callable[[Tensor], Tensor]) -> Tensor:
        weights = draw_weights(Draw(first.device, 0, Path()), one, torch.float32, keep)
        return forward(weights, one, tokens, tokens, uncached())

    full = states(lambda matrix: matrix)
    return float((states(rounded) - full).norm() / full.norm())


def prepare(weights: Weights, shape: Shape, first: Tensor, earlier: Tensor, new: int) -> Metered:
    layers = [{n: packed(m) if m.ndim == 2 else m for n, m in layer.items()} for layer in weights["layers"]]
    narrow = {**weights, "layers": layers, "head": packed(weights["head"])}
    made = generation(narrow, shape, first, earlier, new, int4_linear, compiled, replayable)
    error = "quantisation error of a block"
    return Metered(made.step, lambda: {**made.metrics(), error: rounding_error(shape, first, on_int4_grid)})
