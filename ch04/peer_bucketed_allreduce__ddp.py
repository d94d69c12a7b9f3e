"""DistributedDataParallel with its own buckets of 25 MB, filled by a backward pass that does nothing else."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter, ParameterList
from torch.nn.parallel import DistributedDataParallel

from ch04.baseline_bucketed_allreduce import workload as workload
from common.python.workload import Step


class Deliver(torch.autograd.Function):
    """Nothing forward; backward, the gradients that were given."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Any, ...]:
        return (None, *ctx.gradients)


class Model(Module):
    """Parameters of the gradients' shapes."""

    def __init__(self, gradients: list[Tensor]) -> None:
        super().__init__()
        self.gradients = gradients
        self.weights = ParameterList(Parameter(torch.zeros_like(gradient)) for gradient in gradients)

    def forward(self) -> Tensor:
        return Deliver.apply(self.gradients, *self.weights)


def prepare(gradients: list[Tensor]) -> Step:
    model = Model(gradients)
    parallel = DistributedDataParallel(model, bucket_cap_mb=25, gradient_as_bucket_view=True)

    def step() -> tuple[Tensor, ...]:
        for weight in model.weights:
            weight.grad = None
        parallel().backward()
        return tuple(weight.grad for weight in model.weights)

    return step
