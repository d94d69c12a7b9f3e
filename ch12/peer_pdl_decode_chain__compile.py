"""torch.compile fuses norm and activation with what stands beside them and tunes the products; captured as a graph."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch12.baseline_pdl_decode_chain import EPSILON
from ch12.baseline_pdl_decode_chain import workload as workload
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def chain(x: Tensor, gains: Tensor, up: Tensor, down: Tensor) -> Tensor:
    for gain, first, second in zip(gains, up, down):
        normed = F.rms_norm(x.to(gain.dtype), x.shape[-1:], gain, EPSILON)
        gate, value = F.linear(normed, first).chunk(2, dim=-1)
        x = x + F.linear(F.silu(gate) * value, second)
    return x


compiled = torch.compile(chain, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)


def prepare(x: Tensor, gains: Tensor, up: Tensor, down: Tensor) -> Step:
    out = torch.empty_like(x)
    replay = replayable(lambda: out.copy_(compiled(x[None], gains, up, down)[0]), x.device)

    def step() -> Tensor:
        replay()
        return out

    return step
