"""torch.distributed.pipelining's interleaved 1F1B: thin stages too, a backward soon after each forward, and NCCL."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.nn import Module, Parameter, ParameterList

from ch04.baseline_pipeline_schedule import MICROBATCHES, loss_of, through
from ch04.baseline_pipeline_schedule import workload as workload
from common.python.workload import Step

STAGES = 2  # of each rank


class Layers(Module):
    """What one stage holds."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.weights = ParameterList(Parameter(weight) for weight in weights)

    def forward(self, x: Tensor) -> Tensor:
        return through(list(self.weights), x)


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    everywhere, stages = STAGES * ranks, {}
    for stage in range(rank, everywhere, ranks):
        first, end = (len(weights) * edge // everywhere for edge in (stage, stage + 1))
        stages[first] = PipelineStage(Layers(weights[first:end]), stage, everywhere, x.device)
    schedule = ScheduleInterleaved1F1B(list(stages.values()), MICROBATCHES, lambda output, target: loss_of(output))

    def step() -> Tensor:
        for stage in stages.values():
            stage.submod.zero_grad()
        schedule.step(*[x] * (rank == 0), **{"target": x} if rank == ranks - 1 else {})
        sums = torch.zeros(len(weights), x.shape[1], device=x.device)
        for first, stage in stages.items():
            for index, weight in enumerate(stage.submod.weights):
                sums[first + index] = weight.grad.sum(dim=0, dtype=torch.float32)
        dist.all_reduce(sums)
        return sums

    return step
