"""torch.compile, with einsum written as products and sums, which it can fuse; each of the sums reads all states."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ch18.baseline_kda_decode import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def decode(
    q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, slots: Tensor, states: Tensor
) -> Tensor:
    full = states.dtype
    query = F.normalize(q.to(full), dim=-1) * q.shape[-1] ** -0.5
    key = F.normalize(k.to(full), dim=-1)
    keep = torch.exp(-a_log.exp()[:, None] * F.softplus(f.to(full) + dt_bias))
    state = states[slots] * keep[..., None]
    wrong = v.to(full) - (state * key[..., None]).sum(-2)
    fix = torch.sigmoid(b.to(full))[..., None] * wrong
    state = state + key[..., :, None] * fix[..., None, :]
    states[slots] = state
    return (state * query[..., None]).sum(-2)


def prepare(**of: Tensor) -> Step:
    compiled = torch.compile(decode, fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, Tensor]:
        return compiled(**of), of["states"]

    return step
