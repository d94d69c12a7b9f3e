"""A hook calls AdamW's fused operator itself, past the optimizer's Python, then frees the gradient at once."""

from functools import partial

import torch
from torch import Tensor

from ch13.baseline_optimizer_in_backward import BETA1, BETA2, DECAY, EPSILON, loss_of, rate
from ch13.baseline_optimizer_in_backward import workload as workload
from common.python.workload import Step

HYPER = {"beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": EPSILON, "amsgrad": False, "maximize": False}


def prepare(
    x: Tensor, target: Tensor, count: Tensor, weights: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> Step:
    leaves = [weight.detach().requires_grad_() for weight in weights]
    now = x.new_empty((), dtype=torch.float32)  # the number of this update, which the kernel reads from the device

    def on_gradient(weight: Tensor, mean: Tensor, square: Tensor, leaf: Tensor) -> None:
        assert leaf.grad is not None
        torch._fused_adamw_([weight], [leaf.grad], [mean], [square], [], [now], lr=rate(weight), **HYPER)
        leaf.grad = None

    for leaf, *states in zip(leaves, weights, means, squares):
        leaf.register_post_accumulate_grad_hook(partial(on_gradient, *states))

    def step() -> tuple[Tensor, ...]:
        now.fill_(int(count))
        loss = loss_of(x, target, leaves)
        loss.backward()
        return loss.detach(), *weights, *means, *squares

    return step
