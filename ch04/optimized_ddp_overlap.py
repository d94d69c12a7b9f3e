"""A gradient sets out as soon as its layer is done, and travels while the layers below it are still computed."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from ch04.baseline_ddp_overlap import loss_of
from ch04.baseline_ddp_overlap import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    ranks, parameters = dist.get_world_size(), [Parameter(weight) for weight in weights]
    under_way: list[dist.Work] = []

    def send(parameter: Tensor) -> None:
        under_way.append(dist.all_reduce(parameter.grad, async_op=True))  # 128 MiB, a bucket by itself

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(send)

    def step() -> tuple[Tensor, ...]:
        for parameter in parameters:
            parameter.grad = None
        under_way.clear()
        loss_of(x, parameters).backward()
        for work in under_way:
            work.wait()
        gradients = tuple(parameter.grad for parameter in parameters)
        torch._foreach_div_(gradients, ranks)
        return gradients

    return step
