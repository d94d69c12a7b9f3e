"""Ranks agree on all weights' amax in one small message, cast their own shards, and gather bytes: half of the wire."""
"""Ranks agree on the largest magnitudes first; each casts its own shard, and what is gathered is codes."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch19.baseline_fp8_all_gather import codes, scales
from ch19.baseline_fp8_all_gather import cast, largest, scale_of
from ch19.baseline_fp8_all_gather import workload as workload
from common.python.workload import Step


def prepare(shards: list[Tensor]) -> Step:
    ranks = dist.get_world_size()
    gathered = [x.new_empty(ranks * len(x), x.shape[1], dtype=torch.uint8) for x in shards]

    def step() -> tuple[Tensor, ...]:
        amax = torch.stack(torch._foreach_norm(shards, torch.inf)).float()
        dist.all_reduce(amax, dist.ReduceOp.MAX)  # a shard's own would be a scale that the others do not have
        found, under_way = scales(amax), []
        for out, shard, scale in zip(gathered, shards, found):
            under_way.append(dist.all_gather_into_tensor(out, codes(shard, scale), async_op=True))
        for work in under_way:
            work.wait()
        return *gathered, found
def prepare(shard: Tensor) -> Step:
    own = torch.empty_like(shard, dtype=torch.float8_e4m3fn)
    whole = shard.new_empty(dist.get_world_size(), *shard.shape, dtype=torch.uint8)

    def step() -> tuple[Tensor, Tensor]:
        amax = largest(shard)
        dist.all_reduce(amax, dist.ReduceOp.MAX)
        scale = scale_of(amax)
        cast(shard, scale, own)
        dist.all_gather_into_tensor(whole.flatten(0, 1), own.view(torch.uint8))
        return whole, scale

    return step
