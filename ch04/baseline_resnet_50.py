"""All in float32, plane by plane; when the backward pass is over, every gradient has a collective of its own."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, ParameterList
from torch.nn.functional import batch_norm, conv2d, cross_entropy, linear, max_pool2d, silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE = 0.1  # of each weight's size, as LARS has it, so that every gradient's direction shows in the updated weights


def layers(depths: list[int], base: int, side: int) -> list[tuple[int, int, int, int]]:
    """Of each convolution: outputs, inputs, kernel and the side of what comes out, in order."""
    found, inward, after = [(base, 3, 7, (side + 1) // 2)], base, (side + 3) // 4
    for stage, depth in enumerate(depths):
        inner, before, after = base << stage, after, (after + 1) // 2 if stage else after
        for place in range(depth):
            shortcut = [] if place else [(4 * inner, inward, 1, after)]
            first = (inner, inward, 1, after if place else before)
            found += [*shortcut, first, (inner, inner, 3, after), (4 * inner, inner, 1, after)]
            inward = 4 * inner
    return found


def inputs(draw: Draw, depths: list[int], base: int, batch: int, side: int, classes: int) -> Inputs:
    """A rank's own images, with a colour each, and labels. All ranks have the same weights; a block adds a fifth."""
    weights, inner, last = list[Tensor](), 0, 0
    for last, inward, kernel, _ in layers(depths, base, side):
        gain, inner = 0.2 if inner == 3 else 1.0, kernel
        weights.append(draw.shared.normal(last, inward, kernel, kernel, std=(2 / (inward * kernel**2)) ** 0.5))
        weights += draw.shared.uniform(last, low=gain / 2, high=3 * gain / 2), draw.shared.normal(last, std=gain / 10)
    return {
        "images": draw.normal(batch, 3, side, side) + draw.normal(batch, 3, 1, 1),
        "labels": draw.integers(batch, high=classes),
        "weights": [*weights, draw.shared.normal(classes, last, std=last**-0.5)],
        "depths": depths,
    }


class Net(Module):
    """In training, with SiLU: a rounding that turns a number's sign would move a ReLU's slope from 0 to 1."""

    def __init__(self, weights: list[Tensor], depths: list[int]) -> None:
        super().__init__()
        self.weights, self.depths = ParameterList(weights), depths

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        given = iter(self.weights)

        def unit(x: Tensor, stride: int = 1) -> Tensor:
            kernel = next(given)
            x = conv2d(x, kernel, stride=stride, padding=kernel.shape[2] // 2)
            return batch_norm(x, None, None, next(given), next(given), training=True)

        x = max_pool2d(silu(unit(images, 2)), 3, 2, 1)
        for stage, depth in enumerate(self.depths):
            for place in range(depth):
                stride = 2 if stage and not place else 1
                kept = x if place else unit(x, stride)
                x = silu(kept + unit(silu(unit(silu(unit(x)), stride))))
        return cross_entropy(linear(x.mean((2, 3)), next(given)), labels)


def reference(rank: int, weights: list[list[Tensor]], **given: list) -> tuple[Tensor, ...]:
    net = Net(weights[rank], given["depths"][rank])
    before, gradients = list(net.weights), [0.0] * len(net.weights)
    for batch in zip(given["images"], given["labels"]):  # each rank norms with its own batch's mean and variance
        found = torch.autograd.grad(net(*batch), before)
        gradients = [total + gradient for total, gradient in zip(gradients, found)]  # their length is of no account
    return tuple(w - RATE * w.norm() * g / g.norm() for w, g in zip(before, gradients))


def cost(depths: list[int], base: int, batch: int, side: int, classes: int) -> Cost:
    """Forward, and two products backward, but the images need no gradient; gradients could travel in bf16."""
    found = [*layers(depths, base, side), (classes, base << len(depths) + 1, 1, 1)]
    kernels = [out * inward * kernel**2 for out, inward, kernel, _ in found]
    products = [kernel * after**2 for kernel, (*_, after) in zip(kernels, found)]
    numbers, flops = sum(kernels) + 2 * sum(out for out, *_ in found[:-1]), 6 * sum(products) - 2 * products[0]
    moved = {"read": 4 * numbers, "write": 4 * numbers, "nvlink_bytes": 2 * numbers}
    return Cost(flops=batch * flops, dtype="bf16", **moved, items=batch, unit="images")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"depths": [3, 4, 6, 3], "base": 64, "batch": 32, "side": 224, "classes": 1000},
        "test": {"depths": [1, 2], "base": 4, "batch": 5, "side": 33, "classes": 11},
    },
    tolerance=0.04,  # bf16 turns gradients by a tenth of their length, other images by as much as that length
    frozen=("weights",),  # every step starts from them: it gives the updated ones
    gpus=2,
    clock="end_to_end",
    rungs="channels_last bf16 buckets",
)


def training(net: Net, loss: Callable[[], Tensor], averaged: bool = False) -> Step:
    def step() -> tuple[Tensor, ...]:
        net.zero_grad()
        loss().backward()
        for weight in [] if averaged else net.weights:
            dist.all_reduce(weight.grad)
            weight.grad.div_(dist.get_world_size())
        with torch.no_grad():
            weights, gradients = list(net.weights), [weight.grad for weight in net.weights]
            rates = torch._foreach_div(torch._foreach_norm(weights), torch._foreach_norm(gradients))
            return torch._foreach_sub(weights, torch._foreach_mul(gradients, torch._foreach_mul(rates, RATE)))

    return step


def prepare(images: Tensor, labels: Tensor, weights: list[Tensor], depths: list[int]) -> Step:
    net = Net(weights, depths)
    return training(net, lambda: net(images, labels))
