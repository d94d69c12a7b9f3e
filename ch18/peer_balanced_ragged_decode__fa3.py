"""FlashAttention 3 with lengths: a first kernel divides each cache by its length on the device; a last one merges."""

import torch
from flash_attn_interface import flash_attn_varlen_func
from torch import Tensor

from ch18.baseline_balanced_ragged_decode import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["flash_attn_interface"], sm=90)


def prepare(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Step:
    queries = q.flatten(1, 2)
    each = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)  # one new token a request
    longest = len(k)  # the host knows no better bound; how far each is split is chosen on the device

    def step() -> Tensor:
        out = flash_attn_varlen_func(queries, k, v, each, starts.int(), 1, longest, num_splits=0)
        return (out[0] if isinstance(out, tuple) else out).view_as(q)

    return step
