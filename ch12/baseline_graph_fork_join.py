"""Twelve towers of different widths are captured on one stream: each small product waits for the one before it."""

import torch
from torch import Tensor

from common.models.graphs import replayable
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def tower_widths(towers: int, widths: list[int]) -> list[int]:
    return [widths[index % len(widths)] for index in range(towers)]


def inputs(draw: Draw, batch: int, layers: int, towers: int, widths: list[int]) -> Inputs:
    own = tower_widths(towers, widths)
    return {
        "features": [draw.normal(batch, width, dtype=torch.bfloat16) for width in own],
        # Of this deviation, the activations keep their size from layer to layer.
        "weights": [draw.normal(layers, width, width, std=(2 / width) ** 0.5, dtype=torch.bfloat16) for width in own],
    }


def tower(x: Tensor, weights: Tensor, zeros: Tensor) -> Tensor:
    """Each layer is one kernel: torch has ReLU in a product's epilogue only along with a bias."""
    for weight in weights:
        x = torch._addmm_activation(zeros[: len(weight)], x, weight)
    return x


def reference(features: list[Tensor], weights: list[Tensor]) -> Tensor:
    done = list(features)
    for index, own in enumerate(weights):
        for weight in own:
            done[index] = (done[index] @ weight).relu_()
    return torch.cat(done, dim=1)


def cost(batch: int, layers: int, towers: int, widths: list[int]) -> Cost:
    own = tower_widths(towers, widths)
    weights, activations = layers * sum(width**2 for width in own), batch * sum(own)
    return Cost(
        flops=2 * batch * weights,
        dtype="bf16",
        read=2 * (weights + activations),
        write=2 * activations,
        items=batch,
        unit="rows",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 106 million weights, 212 MB: no L2 holds them, and the products' FLOPs bound the time
        "bench": {"batch": 256, "layers": 10, "towers": 12, "widths": [512, 768, 1024, 1280]},
        "test": {"batch": 5, "layers": 3, "towers": 6, "widths": [24, 37, 48]},
    },
    tolerance=0.02,  # bf16 rounds each layer's output at 0.2%, ten times one after the other
    frozen=("weights",),
)


def prepare(features: list[Tensor], weights: list[Tensor]) -> Step:
    widths = [x.shape[1] for x in features]
    out, zeros = features[0].new_empty(len(features[0]), sum(widths)), features[0].new_zeros(max(widths))

    def work() -> None:
        torch.cat([tower(x, own, zeros) for x, own in zip(features, weights)], dim=1, out=out)

    replay = replayable(work, out.device)

    def step() -> Tensor:
        replay()
        return out

    return step
