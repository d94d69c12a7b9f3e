"""A hook updates each weight as soon as its gradient is there, and frees the gradient before the next is computed."""

from functools import partial

from torch import Tensor

from ch13.baseline_optimizer_in_backward import loss_of, update
from ch13.baseline_optimizer_in_backward import workload as workload
from common.python.workload import Step


def prepare(
    x: Tensor, target: Tensor, count: Tensor, weights: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> Step:
    leaves = [weight.detach().requires_grad_() for weight in weights]

    def on_gradient(weight: Tensor, mean: Tensor, square: Tensor, leaf: Tensor) -> None:
        assert leaf.grad is not None
        update([weight], [leaf.grad], [mean], [square], count)
        leaf.grad = None

    for leaf, *states in zip(leaves, weights, means, squares):
        leaf.register_post_accumulate_grad_hook(partial(on_gradient, *states))

    def step() -> tuple[Tensor, ...]:
        loss = loss_of(x, target, leaves)
        loss.backward()
        return loss.detach(), *weights, *means, *squares

    return step
