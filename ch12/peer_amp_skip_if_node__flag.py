"""No branch: a graph always starts the update, which reads a flag in device memory and may end at once."""

import torch
from torch import Tensor

from ch12.baseline_amp_skip_if_node import workload as workload
from common.models.graphs import replayable
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(
    gradients: Tensor, parameters: Tensor, means: Tensor, squares: Tensor, scale: Tensor, updates: Tensor
) -> Step:
    train, state = load_cuda(__file__, "train"), (parameters, means, squares, scale, updates)
    scratch, verdict = scale.new_zeros(2, dtype=torch.int32), scale.new_empty(1, dtype=torch.int32)
    replay = replayable(lambda: train(gradients, *state, scratch, verdict, *gradients.shape), gradients.device)

    def step() -> tuple[Tensor, ...]:
        replay()
        return state

    return step
