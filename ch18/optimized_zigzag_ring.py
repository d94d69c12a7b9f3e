"""Each rank takes an early chunk of the text and its mirror image, so causal work is equal."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch18.baseline_zigzag_ring import merge
from ch18.baseline_zigzag_ring import workload as workload
from common.models.context_parallel import attend
from common.models.link import ring
from common.python.workload import Step


def prepare(q: Tensor, kv: Tensor) -> Step:
    rank, ranks, half = dist.get_rank(), dist.get_world_size(), len(q) // 2
    to = [min(chunk, 2 * ranks - 1 - chunk) for chunk in (2 * rank, 2 * rank + 1)]  # whose this rank's chunks become
    here = [to.count(other) for other in range(ranks)]
    there = [[rank // 2, (2 * ranks - 1 - rank) // 2].count(other) for other in range(ranks)]
    back = to[0] > to[1]  # chunks leave in the order of the ranks that they go to
    mine, ours, room = torch.empty_like(q), torch.empty_like(kv), kv.new_empty(2, *kv.shape)
    returned = torch.empty_like(q)

    def exchanged(out: Tensor, x: Tensor, sizes: list[int], others: list[int]) -> None:
        dist.all_to_all_single(out, x, [half * n for n in others], [half * n for n in sizes])

    def swapped(x: Tensor) -> Tensor:
        return torch.cat([x[half:], x[:half]]) if back else x

    def step() -> Tensor:
        exchanged(ours, swapped(kv), here, there)
        exchanged(mine, swapped(q), here, there)
        blocks = ring(ours, room)
        out, total = attend(mine, next(blocks), causal=True)  # an early and a late chunk are in order too
        for turn, theirs in enumerate(blocks, start=1):  # theirs are of so many ranks before this one
            if turn <= rank:  # all queries come after its early chunk, and none after its late one
                merge(out, total, *attend(mine, theirs[:half], causal=False))
            else:  # the late queries come after both, the early ones after none
                merge(out[half:], total[half:], *attend(mine[half:], theirs, causal=False))
        exchanged(returned, out.contiguous(), there, here)
        return swapped(returned)

    return step
