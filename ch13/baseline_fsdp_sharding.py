"""Each rank keeps all weights, gradients and AdamW moments, sixteen bytes a parameter, and updates all of them."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE, DECAY, BETA1, BETA2, EPSILON, UPDATE = 1e-3, 0.1, 0.9, 0.999, 1e-8, 10  # of the tenth update
HYPER = {"lr": RATE, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": EPSILON}


def inputs(draw: Draw, blocks: int, width: int, tokens: int) -> Inputs:
    """Every rank has tokens of its own and the same weights, a transformer's MLPs: two thirds of all that it has."""
    shapes = [(4 * width, width), (width, 4 * width)] * blocks
    return {
        "x": draw.normal(tokens, width),
        "target": draw.normal(tokens, width),
        "weights": [draw.shared.normal(*shape, std=shape[1] ** -0.5) for shape in shapes],
    }


class Block(Module):
    """x + down gelu(up norm(x)), of which the backward is left x alone: what training states take is the subject."""

    def __init__(self, up: Tensor, down: Tensor) -> None:
        super().__init__()
        self.up, self.down = Parameter(up), Parameter(down)

    def branch(self, x: Tensor) -> Tensor:
        return F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), self.up)), self.down)

    def forward(self, x: Tensor) -> Tensor:
        return x + checkpoint(self.branch, x, use_reentrant=False, preserve_rng_state=False)


class Model(Module):
    """The blocks, and how far from the target they end."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.blocks = ModuleList(Block(up, down) for up, down in zip(weights[::2], weights[1::2]))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return (x - target).square().sum() / len(x)


def share(tensor: Tensor, rank: int, ranks: int) -> Tensor:
    """The rows of a rank: those that sharding gives it."""
    return tensor.chunk(ranks)[rank]


def reference(rank: int, x: list[Tensor], target: list[Tensor], weights: list[list[Tensor]]) -> tuple[Tensor, ...]:
    """This rank's rows of the mean gradients, which are those of all tokens together, and of the updated weights."""
    model, ranks, updated = Model(weights[rank]), len(x), []
    found = torch.autograd.grad(model(torch.cat(x), torch.cat(target)), list(model.parameters()))
    gradients = [share(gradient, rank, ranks) for gradient in found]
    for w, g in zip(weights[rank], gradients):
        p = share(w, rank, ranks)
        mean = (BETA1 * p + (1 - BETA1) * g) / (1 - BETA1**UPDATE)
        square = (BETA2 * (1 + p.square()) + (1 - BETA2) * g.square()) / (1 - BETA2**UPDATE)
        updated.append(p - RATE * (DECAY * p + mean / (square.sqrt() + EPSILON)))
    return *gradients, *updated


def cost(blocks: int, width: int, tokens: int) -> Cost:
    """Of one of two ranks: products forward and back, and the gradients' and the weights' way to and from the other."""
    weights, first = 8 * blocks * width**2, 4 * width**2  # what comes in needs no gradient
    return Cost(flops=tokens * (6 * weights - 2 * first), nvlink_bytes=4 * weights, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={"bench": {"blocks": 8, "width": 1024, "tokens": 2048}, "test": {"blocks": 3, "width": 37, "tokens": 11}},
    tolerance=1e-5,
    frozen=("weights",),  # a checkpoint, from which every step starts anew
    gpus=2,
    clock="end_to_end",
    goal="memory",
)


def train_step(
    model: Module, loss: Callable[[], Tensor], kept: list[Tensor], local: Callable[[Tensor], Tensor]
) -> Step:
    """Load what the rank keeps of the weights, train, give gradients and weights; `local` is the rank's part of one."""
    means, squares = ([torch.empty_like(weight) for weight in kept] for _ in range(2))
    counts = [kept[0].new_full((), UPDATE)] * len(kept)

    def step() -> tuple[Tensor, ...]:
        weights = [local(parameter.detach()) for parameter in model.parameters()]
        for held in (weights, means, squares):  # the moments are made of the weights: they need no file of their own
            torch._foreach_copy_(held, kept)
        torch._foreach_mul_(squares, kept)
        torch._foreach_add_(squares, 1)
        model.zero_grad()
        loss().backward()
        gradients = [local(parameter.grad) for parameter in model.parameters()]
        torch._fused_adamw_(weights, gradients, means, squares, [], counts, amsgrad=False, maximize=False, **HYPER)
        return *gradients, *weights

    return step


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    model, rank, ranks = Model([weight.clone() for weight in weights]), dist.get_rank(), dist.get_world_size()
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)  # or gradients would be there twice
    step = train_step(model, lambda: parallel(x, target), weights, Tensor.detach)
    return lambda: tuple(share(tensor, rank, ranks) for tensor in step())
