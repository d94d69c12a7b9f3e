"""Liger's tiled MLP: eight tiles forward without autograd; each once more, forward and backward, on the way back."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ch20.baseline_long_context_train import NAMES, attention_half, kept_small, mlp_half
from ch20.baseline_long_context_train import workload as workload
from common.models.caches import causal_attention
from common.models.decoder import Shape, Weights
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=60, modules=["liger_kernel"])
TILES = 8


def prepare(x: Tensor, slope: Tensor, layers: list[Weights], shape: Shape) -> Step:
    from liger_kernel.ops.tiled_mlp import apply_tiled_mlp

    leaves = [w.detach().requires_grad_() for w in (x, *(layer[name] for layer in layers for name in NAMES))]
    attend = partial(attention_half, shape, lambda layer, q, k, v: causal_attention(q, k, v))

    def half(weights: Any, tile: Tensor) -> Tensor:
        return mlp_half(tile, *weights)

    def step() -> tuple[Tensor, ...]:
        hidden = leaves[0]
        for leaf in leaves:
            leaf.grad = None  # the tiles add to it
        for first in range(1, len(leaves), 6):
            middle = kept_small(attend, hidden, *leaves[first : first + 3])
            hidden = apply_tiled_mlp(half, leaves[first + 3 : first + 6], middle, TILES)
        torch.autograd.backward(hidden, slope)
        return hidden.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)

    return step
