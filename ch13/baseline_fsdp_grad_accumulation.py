"""The whole model is one sharded unit: each micro-batch waits for all of its weights, then for all of its gradients."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import Module, ModuleList, Parameter
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Step, Workload

MICROBATCHES = 4


def inputs(draw: Draw, blocks: int, width: int, hidden: int, tokens: int) -> Inputs:
    """`tokens` of each micro-batch and rank; the weights are the same everywhere, an MLP's two in each block."""
    shapes = [(hidden, width), (width, hidden)] * blocks
    return {
        "x": draw.normal(MICROBATCHES * tokens, width, dtype=torch.bfloat16),
        "weights": [draw.shared.normal(*shape, std=shape[1] ** -0.5, dtype=torch.bfloat16) for shape in shapes],
    }


class Layer(Module):
    """A product and a bounded function; gradients then have no long tails that bfloat16 would show."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = Parameter(weight.clone())

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(linear(x, self.weight))


class Stack(Module):
    """Modules one after the other."""

    def __init__(self, parts: Sequence[Module]) -> None:
        super().__init__()
        self.parts = ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


def model_of(weights: Sequence[Tensor]) -> Stack:
    return Stack([Stack([Layer(up), Layer(down)]) for up, down in zip(weights[::2], weights[1::2])])


def reference(rank: int, x: list[Tensor], weights: list[list[Tensor]]) -> tuple[Tensor, ...]:
    """This rank's rows of the gradients of the mean over all tokens: all micro-batches have as many."""
    model = model_of(weights[rank])
    loss = model(torch.cat(x)).square().sum(dim=1).mean()
    return tuple(g.chunk(len(x))[rank] for g in torch.autograd.grad(loss, list(model.parameters())))


def cost(blocks: int, width: int, hidden: int, tokens: int) -> Cost:
    """For two ranks: weights are gathered once and gradients reduced once, half of them each, whatever the batch."""
    numbers, rows = 2 * blocks * width * hidden, MICROBATCHES * tokens
    return Cost(
        flops=(6 * blocks - 1) * 2 * rows * width * hidden,  # the batch needs no gradient
        dtype="bf16",
        nvlink_bytes=2 * numbers,
        items=rows,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"blocks": 2, "width": 8192, "hidden": 8192, "tokens": 2048},
        "test": {"blocks": 2, "width": 38, "hidden": 70, "tokens": 13},
    },
    tolerance=0.03,  # bfloat16 rounds activations, gradients, and the sums of these over micro-batches and ranks
    frozen=("weights",),
    gpus=2,
    clock="end_to_end",
    rungs="per_layer per_block prefetch",
)


def train_step(model: Stack, x: Tensor, at_micro_batch: Callable[[int], None]) -> Step:
    """A step that gives the rank's rows of all gradients; it says which micro-batch is to come."""
    parameters, batches = list(model.parameters()), x.chunk(MICROBATCHES)

    def step() -> tuple[Tensor, ...]:
        for parameter in parameters:
            parameter.grad = None
        for index, batch in enumerate(batches):
            at_micro_batch(index)
            (model(batch).square().sum(dim=1).mean() / MICROBATCHES).backward()
        gradients = [parameter.grad for parameter in parameters]
        return tuple(g.to_local() for g in gradients if isinstance(g, DTensor))

    return step


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    model, mesh = model_of(weights), init_device_mesh(x.device.type, (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    return train_step(model, x, lambda index: None)
