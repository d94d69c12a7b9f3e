"""The prompts are cut in two batches that take turns: while one is summed over the ranks, the other is multiplied."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch20.baseline_tp_prefill_70b import Layer, halves
from ch20.baseline_tp_prefill_70b import workload as workload
from common.python.workload import Step

BATCHES = 2


def prepare(x: Tensor, layers: list[Layer]) -> Step:
    def step() -> Tensor:
        batches = list(x.chunk(BATCHES))
        under_way: list[tuple[Tensor, dist.Work]] = []
        for half in halves(layers):
            for index, y in enumerate(batches):
                if len(under_way) == BATCHES:  # the first in is this batch's own sum
                    more, work = under_way.pop(0)
                    work.wait()
                    y = batches[index] = y + more
                more = half(y)
                under_way.append((more, dist.all_reduce(more, async_op=True)))
        for index, (more, work) in enumerate(under_way):
            work.wait()
            batches[index] = batches[index] + more
        return torch.cat(batches)

    return step
