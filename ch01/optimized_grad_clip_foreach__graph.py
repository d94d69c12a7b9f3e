"""The list operators are recorded once as a CUDA graph: making 400 small norms costs the CPU no more time."""

import torch
from torch import Tensor

from ch01.baseline_grad_clip_foreach import LIMIT
from ch01.baseline_grad_clip_foreach import workload as workload
from common.models.graphs import replayable
from common.python.workload import Step


def prepare(gradients: list[Tensor]) -> Step:
    norm, drawn = gradients[0].new_empty(()), [gradient.clone() for gradient in gradients]

    def clip() -> None:
        torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)), out=norm)
        torch._foreach_mul_(gradients, LIMIT / norm.clamp(min=LIMIT))

    replay = replayable(clip, norm.device)
    torch._foreach_copy_(gradients, drawn)  # warming up has clipped them

    def step() -> tuple[Tensor, ...]:
        replay()
        return norm, *gradients

    return step
