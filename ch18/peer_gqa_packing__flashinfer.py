"""FlashInfer's batch decode on tensor cores: query heads that share a key head are rows of a tile there too."""

import torch
from torch import Tensor

from ch18.baseline_gqa_packing import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["flashinfer"], sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    (requests, heads, group, width), keys = q.shape, k.shape[2]
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)  # of the size that its manual advises
    decode = BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True, backend="fa2")
    # A request's cache is one page; with 256 key heads its plan would split none of them anyway.
    ends = torch.arange(requests + 1, dtype=torch.int32)
    full = torch.full((requests,), keys, dtype=torch.int32)
    shape = heads * group, heads, width, keys
    decode.plan(ends, ends[:-1], full, *shape, q_data_type=q.dtype, kv_data_type=k.dtype)
    return lambda: decode.run(q.flatten(1, 2), (k, v)).view_as(q)
