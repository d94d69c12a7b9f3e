"""Both passes of guidance are one batch: half of the launches, weights read once, and products of twice the rows."""

import torch
from torch import Tensor

from ch20.baseline_dit_sampler import GUIDANCE, network
from ch20.baseline_dit_sampler import workload as workload
from common.python.workload import Step


def prepare(
    noise: Tensor, classes: Tensor, no_class: Tensor, times: Tensor, positions: Tensor, **weights: list
) -> Step:
    @torch.inference_mode()
    def step() -> Tensor:
        x, conditions = noise, torch.cat([classes, no_class.expand_as(classes)])
        for moment in times:
            with_class, without = network(x.repeat(2, 1, 1), conditions + moment, positions, **weights).chunk(2)
            x = x + (without + GUIDANCE * (with_class - without)) / len(times)
        return x

    return step
