"""Ranks split the cache and not the heads: all queries visit each part of it, and partial outputs come home."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch18.baseline_mla_context_parallel import ROTARY, attention, merged
from ch18.baseline_mla_context_parallel import workload as workload
from common.python.workload import Step


def prepare(q: Tensor, cache: Tensor) -> Step:
    rank, ranks, (requests, heads, row) = dist.get_rank(), dist.get_world_size(), q.shape
    mine = cache.tensor_split(ranks, dim=1)[rank]  # all that this rank would have to hold
    attended, gathered = attention(ranks * heads, mine, warps=8), q.new_empty(ranks, *q.shape)
    came = q.new_empty(ranks, requests, heads, row - ROTARY + 1, dtype=torch.float32)

    def step() -> Tensor:
        dist.all_gather_into_tensor(gathered, q[None])
        out, total = attended(gathered.transpose(0, 1).flatten(1, 2))
        parts = torch.cat([out, total[..., None]], dim=2).unflatten(1, (ranks, heads)).transpose(0, 1).contiguous()
        dist.all_to_all_single(came, parts)
        sums = came.movedim(0, 2)  # by rank, as those of a rank are by part
        return merged(sums[..., :-1], sums[..., -1])[0].to(q.dtype)

    return step
