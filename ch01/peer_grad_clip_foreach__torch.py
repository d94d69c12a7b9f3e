"""torch.nn.utils.clip_grad_norm_, which uses the same operators and sorts the gradients by device and type first."""

from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from ch01.baseline_grad_clip_foreach import LIMIT
from ch01.baseline_grad_clip_foreach import workload as workload
from common.python.workload import Step


def prepare(gradients: list[Tensor]) -> Step:
    parameters = [gradient.detach() for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient

    def step() -> tuple[Tensor, ...]:
        return clip_grad_norm_(parameters, LIMIT, foreach=True), *gradients

    return step
