"""FlashInfer's batch decode over the same 16-token pages, its work planned on the host from the lengths."""

import torch
from torch import Tensor

from ch15.baseline_paged_kv import HEAD_DIM, HEADS, KV_HEADS, caching, stored
from ch15.baseline_paged_kv import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1, modules=["flashinfer"])
PAGE = 16


def prepare(lengths: Tensor, longest: int, queries: Tensor, keys: Tensor, values: Tensor) -> Metered:
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=keys.device)  # of the size that its manual advises
    decode = BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")

    def step() -> Tensor:
        pools, first = stored(PAGE, lengths, [keys, values])
        ends = torch.cat([first, torch.tensor([len(pools[0])])]).int()
        pages, last = torch.arange(len(pools[0]), dtype=torch.int32), ((lengths - 1) % PAGE + 1).int()
        heads = HEADS, KV_HEADS, HEAD_DIM, PAGE
        decode.plan(ends, pages.to(keys.device), last, *heads, q_data_type=keys.dtype, kv_data_type=keys.dtype)
        return decode.run(queries, (pools[0], pools[1]))

    return Metered(step, caching(PAGE, lengths, queries, keys, values).metrics)
