"""GPipe: all microbatches go forward, then all go backward; at both turns the other ranks stand idle."""

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from common.models.graphs import captured_training
from common.models.link import Link
from common.python.workload import Cost, Draw, Inputs, Step, Workload

MICROBATCHES, FORWARD, BACKWARD = 4, 0, 1
Turn = tuple[int, int, int]  # forward or backward, through which of the rank's stages, with which microbatch


def inputs(draw: Draw, rows: int, width: int, layers: int) -> Inputs:
    """Every rank is given all layers and runs its own; the batch is the first rank's."""
    weights = [draw.shared.normal(width, width, std=width**-0.5, dtype=torch.bfloat16) for _ in range(layers)]
    return {"x": draw.normal(rows, width, dtype=torch.bfloat16), "weights": weights}


def through(layers: list[Tensor], x: Tensor) -> Tensor:
    for weight in layers:
        x = torch.tanh(x @ weight.T)  # all layers' gradients are of one size, so that none is lost in the norm
    return x


def loss_of(output: Tensor) -> Tensor:
    return output.square().sum(dim=1).mean()


def reference(rank: int, x: list[Tensor], weights: list[list[Tensor]]) -> Tensor:
    """Each layer's gradient, summed over its rows: that of what is added to all rows alike, one product less."""
    output, added = x[0], x[0].new_zeros(len(weights[0]), x[0].shape[1]).requires_grad_()
    for weight, row in zip(weights[0], added):
        output = torch.tanh(output @ weight.T + (output @ row)[:, None])
    return torch.autograd.grad(loss_of(output), added)[0]


workload = Workload(
    inputs=inputs,
    reference=reference,
    # Each rank has its share of the layers, and what lies between two of them crosses the link once each way.
    cost=lambda rows, width, layers, ranks=2: Cost(
        flops=6 * layers / ranks * rows * width**2, dtype="bf16", nvlink_bytes=2 * rows * width, items=rows, unit="rows"
    ),
    sizes={"bench": {"rows": 20480, "width": 4096, "layers": 8}, "test": {"rows": 28, "width": 131, "layers": 8}},
    tolerance=0.02,  # bfloat16 rounds each of the layers' activations and gradients to 8 bits
    gpus=2,
    clock="end_to_end",
)


def breadth_first(stages: int) -> list[Turn]:
    """All microbatches forward through a stage before they go through the rank's next one; then backward likewise."""
    forward = [(FORWARD, stage, index) for stage in range(stages) for index in range(MICROBATCHES)]
    return forward + [(BACKWARD, stages - 1 - stage, index) for _, stage, index in forward]


def pipelined(x: Tensor, weights: list[Tensor], stages: int, turns: list[Turn]) -> Step:
    """A step of any schedule: this rank has so many stages and takes these turns. It gives sums of the gradients.

    On a GPU the turns are a CUDA graph: launched one by one, they would wait for a slow host, whatever their order.
    """
    rank, ranks, batches = dist.get_rank(), dist.get_world_size(), x.chunk(MICROBATCHES)
    after, before, each = (rank + 1) % ranks, (rank - 1) % ranks, len(weights) // (stages * ranks)
    place = {turn: number for number, turn in enumerate(sorted(turns))}  # alike on all ranks
    link, nothing = Link(batches[0], len(place)), torch.zeros(x.shape[1], device=x.device)
    sums: list[Tensor] = []

    def take_turns() -> None:
        layers = [weight.detach().requires_grad_() for weight in weights]
        kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        for direction, mine, index in turns:
            stage = mine * ranks + rank  # in the order in which a microbatch goes through them
            first, last, arrives = stage == 0, stage == stages * ranks - 1, place[direction, mine, index]
            if direction == FORWARD:
                start = batches[index] if first else link.receive(before, arrives).requires_grad_()
                end = through(layers[stage * each :][:each], start)
                kept[mine, index] = start, loss_of(end) / MICROBATCHES if last else end
                if not last:
                    link.send(end.detach(), after, place[FORWARD, (stage + 1) // ranks, index])
            else:
                start, end = kept.pop((mine, index))
                end.backward(None if last else link.receive(after, arrives))
                if not first:
                    link.send(start.grad, before, place[BACKWARD, (stage - 1) // ranks, index])
        gradients = [nothing if layer.grad is None else layer.grad.sum(0, dtype=torch.float32) for layer in layers]
        sums[:] = [torch.stack(gradients)]
        link.join()

    def step(turns: Callable[[], None] = take_turns) -> Tensor:
        turns()
        dist.all_reduce(sums[0])  # all messages are read: the next step may write their places
        return sums[0]

    return partial(step, captured_training(take_turns, x.device, warm_up=step))


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    return pipelined(x, weights, 1, breadth_first(1))
