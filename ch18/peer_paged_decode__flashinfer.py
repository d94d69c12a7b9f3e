"""FlashInfer's batch decode on tensor cores; the host planned once, by lengths alone, how the requests are split."""

import torch
from torch import Tensor

from ch18.baseline_paged_decode import PAGE
from ch18.baseline_paged_decode import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["flashinfer"], sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Step:
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    requests, pages = table.shape
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)  # of the size that its manual advises
    decode = BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True, backend="fa2")
    ends = torch.arange(requests + 1, dtype=torch.int32) * pages
    shape = q.shape[1], k.shape[2], q.shape[2], PAGE
    full = torch.full((requests,), PAGE, dtype=torch.int32)
    # It keeps the table itself, not a copy, so each step reads it anew.
    decode.plan(ends, table.flatten(), full, *shape, q_data_type=q.dtype, kv_data_type=k.dtype)
    return lambda: decode.run(q, (k, v))
