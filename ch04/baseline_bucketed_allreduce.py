"""Every gradient is summed over the ranks by a collective of its own: a hundred latencies, one after the other."""

import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, layers: int, width: int) -> Inputs:
    """A layer has four square weights and four vectors, as a transformer has matrices, biases and norms."""
    shapes = [(width, width), (width,)] * 4 * layers
    return {"gradients": [draw.normal(*shape) for shape in shapes]}


def reference(rank: int, gradients: list[list[Tensor]]) -> tuple[Tensor, ...]:
    return tuple(sum(of_ranks) / len(gradients) for of_ranks in zip(*gradients))


def cost(layers: int, width: int) -> Cost:
    numbers = 4 * layers * (width * width + width)
    # A rank must send 2(n - 1)/n of its bytes, which is once all of them for two ranks and more for more.
    return Cost(nvlink_bytes=4 * numbers, items=8 * layers, unit="gradients")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={"bench": {"layers": 16, "width": 512}, "test": {"layers": 3, "width": 37}},
    tolerance=1e-6,
    mutates=("gradients",),
    gpus=2,
    clock="end_to_end",
)


def prepare(gradients: list[Tensor]) -> Step:
    ranks = dist.get_world_size()

    def step() -> tuple[Tensor, ...]:
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient.div_(ranks)
        return tuple(gradients)

    return step
