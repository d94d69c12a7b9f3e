"""FlashInfer's batch decode over the same 16-token pages, its work planned on the host from the lengths."""

import torch
from torch import Tensor

from ch15.baseline_paged_kv import dealt, in_use, store
from ch15.baseline_paged_kv import workload as workload
from common.models.caches import new_cache, paging
from common.models.decoder import Shape, Weights, forward, greedy
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1, modules=["flashinfer"])
PAGE = 16


def prepare(
    weights: Weights, shape: Shape, lengths: Tensor, latest: Tensor, packed: Tensor, longest: int, new: int
) -> Metered:
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    span, sizes = -(-longest // PAGE), (shape.heads, shape.kv_heads, shape.head_dim, PAGE)
    pool = new_cache(shape, int(dealt(lengths + new, PAGE, span)[1].sum()), PAGE, packed)
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=packed.device)  # of the size that its manual advises
    decode = BatchDecodeWithPagedKVCacheWrapper(workspace, "HND")
    tokens, states = latest.new_empty(len(latest), new), packed.new_empty(len(latest), new, shape.width)

    def passed(token: Tensor, table: Tensor, seen: Tensor) -> Tensor:
        """The states (requests, width) that `token` of each leaves, with which it has seen so many."""
        counts, last = -(-seen // PAGE), (seen - 1) % PAGE + 1
        ends = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
        pages = table[torch.arange(span) < counts[:, None]].int().to(packed.device)
        decode.plan(ends, pages, last.int(), *sizes, q_data_type=packed.dtype, kv_data_type=packed.dtype)
        table, here = table.to(packed.device), (seen - 1)[:, None].to(packed.device)
        keep = paging(pool, table, here)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keep(layer, k, v)
            return decode.run(q[:, 0], (pool.keys[layer], pool.values[layer]))[:, None]

        return forward(weights, shape, token[:, None], here, attend)[:, 0]

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        table, token = dealt(lengths + new, PAGE, span)[0], latest
        store(pool, table, lengths, packed)
        for index in range(new):
            states[:, index] = passed(token, table, lengths + index + 1)
            tokens[:, index] = token = greedy(weights, states[:, index])
        return tokens, states

    return Metered(step, lambda: in_use(pool, lengths + new))
