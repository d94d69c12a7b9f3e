"""FlashInfer's cascade: all requests' queries meet the prompt as one tile's rows, each its own keys, and both merge."""

import math
from typing import Any

import torch
from torch import Tensor

from ch18.baseline_shared_prefix_cascade import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["flashinfer"], sm=80)


def planned(q: Tensor, cache: Tensor, requests: int) -> Any:
    """Attention of q's rows, shared out evenly to `requests`, over a cache (pages, heads, page, width) likewise."""
    from flashinfer import BatchPrefillWithPagedKVCacheWrapper

    (pages, heads, page, width), rows = cache.shape, q.shape[0]
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)  # of the size that its manual advises
    level = BatchPrefillWithPagedKVCacheWrapper(workspace, "HND", backend="fa2")
    each, full = torch.arange(requests + 1, dtype=torch.int32), torch.full((requests,), page, dtype=torch.int32)
    ends = each * (rows // requests), each * (pages // requests), torch.arange(pages, dtype=torch.int32)
    level.plan(*ends, full, q.shape[1], heads, width, page, q_data_type=q.dtype, kv_data_type=cache.dtype)
    return level


def prepare(q: Tensor, common_k: Tensor, common_v: Tensor, own_k: Tensor, own_v: Tensor) -> Step:
    """Its MultiLevelCascadeAttentionWrapper's steps: that one wants both levels in one pool of pages."""
    from flashinfer import merge_state_in_place

    queries, page = q.flatten(1, 2), math.gcd(common_k.shape[1], 64)
    prompt = tuple(x.unflatten(1, (-1, page)).transpose(0, 1) for x in (common_k, common_v))  # in pages, not moved
    together, apart = planned(queries, prompt[0], 1), planned(queries, own_k, len(q))
    outs = [torch.empty_like(queries) for _ in range(2)]

    def step() -> Tensor:
        out, total = apart.run(queries, (own_k, own_v), out=outs[0], return_lse=True)
        merge_state_in_place(out, total, *together.run(queries, prompt, out=outs[1], return_lse=True))
        return out.view_as(q)

    return step
