"""The feed-forward half takes an eighth of the sequence at a time: the other tokens' wide numbers do not exist."""

from functools import partial

import torch
from torch import Tensor

from ch20.baseline_long_context_train import NAMES, attention_half, kept_small, mlp_half
from ch20.baseline_long_context_train import workload as workload
from common.models.caches import causal_attention
from common.models.decoder import Shape, Weights
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=60)
TILES = 8


def prepare(x: Tensor, slope: Tensor, layers: list[Weights], shape: Shape) -> Step:
    start, *leaves = (w.detach().requires_grad_() for w in (x, *(layer[name] for layer in layers for name in NAMES)))
    attend = partial(attention_half, shape, lambda layer, q, k, v: causal_attention(q, k, v))

    def step() -> tuple[Tensor, ...]:
        hidden = start
        for first in range(0, len(leaves), 6):
            middle = kept_small(attend, hidden, *leaves[first : first + 3])
            tiles = middle.chunk(TILES, dim=1)
            hidden = torch.cat([kept_small(mlp_half, tile, *leaves[first + 3 : first + 6]) for tile in tiles], 1)
        return hidden.detach(), *torch.autograd.grad(hidden, [start, *leaves], slope)

    return step
