"""FlashInfer's MLA decode, by wgmma on Hopper: the host planned once, from shapes, how caches are split."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ch18.baseline_mla_absorbed_decode import ROTARY
from ch18.baseline_mla_absorbed_decode import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["flashinfer"], sm=80)
LATENT = 512  # the only latent size that its tests cover: fewer columns, of the test size alone, get zeros beside them


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    from flashinfer.mla import BatchMLAPagedAttentionWrapper

    (requests, heads, width), (keys, latent) = q.shape, cache.shape[1:]
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)  # of the size that its manual advises
    attention = BatchMLAPagedAttentionWrapper(workspace)
    each, lengths = torch.arange(requests + 1, dtype=torch.int32), torch.full((requests,), keys, dtype=torch.int32)
    # One query a request, whose cache is one page; not causal.
    sizes = heads, LATENT, ROTARY, keys, False, (width + ROTARY) ** -0.5, q.dtype, cache.dtype
    attention.plan(each, each, each[:-1], lengths, *sizes)

    def step() -> Tensor:
        queries, rows = torch.bmm(q.transpose(0, 1), to_keys).transpose(0, 1), cache
        if latent < LATENT:
            queries, rows = (pad(x, (0, LATENT - latent)) for x in (queries, rows))
        seen = attention.run(queries, q_rotary, rows, rotary)[..., :latent]
        return torch.bmm(seen.transpose(0, 1), to_values).transpose(0, 1)

    return step
