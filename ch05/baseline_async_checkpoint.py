"""torch.save between two training steps: they wait until the state has left the GPU and the disk has written it."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from common.models.timeline import median_ms
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

requires = needs(direct_io=True)  # a disk: a checkpoint in a tmpfs would be written to memory
RATE = 0.01
Save = Callable[[Tensor, Path], Callable[[], None]]  # begins to write the weights; what it returns waits for the end


def inputs(draw: Draw, layers: int, width: int, rows: int, steps: int) -> Inputs:
    weights = draw.normal(layers, width, width)
    return {
        "weights": weights,
        "samples": draw.normal(steps, rows, width),
        "targets": draw.normal(steps, rows, width),
        "path": draw.file("checkpoint.pt", torch.zeros_like(weights)),
    }


def train(weights: Tensor, x: Tensor, y: Tensor) -> None:
    """A step of gradient descent, in place: each layer is fitted to the targets by least squares."""
    for weight in weights:
        weight.sub_(x.T @ (x @ weight - y), alpha=RATE / len(x))


def reference(weights: Tensor, samples: Tensor, targets: Tensor, path: Path) -> tuple[Tensor, Tensor]:
    """The weights after the first step, which the file holds, and after the last."""
    train(weights, samples[0], targets[0])
    saved = weights.clone()
    for x, y in zip(samples[1:], targets[1:]):
        train(weights, x, y)
    return saved, weights


def cost(layers: int, width: int, rows: int, steps: int) -> list[Cost]:
    """The first step; then the others, while the state leaves the GPU. How fast a disk takes it was not measured."""
    step, state = 4 * layers * rows * width**2, 4 * layers * width**2
    return [Cost(flops=step), Cost(flops=(steps - 1) * step, pcie_bytes=state, items=steps, unit="steps")]


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"layers": 4, "width": 2048, "rows": 2048, "steps": 20},  # 64 MiB
        "cpu": {"layers": 2, "width": 1024, "rows": 16, "steps": 8},
        "test": {"layers": 3, "width": 37, "rows": 11, "steps": 3},
    },
    tolerance=1e-5,
    mutates=("weights",),
    clock="end_to_end",
)


def write(state: Tensor, path: Path) -> None:
    with path.open("wb") as file:
        torch.save({"weights": state}, file)
        file.flush()
        os.fsync(file.fileno())  # or a power cut would take the checkpoint that the loop believes to have


def training(weights: Tensor, samples: Tensor, targets: Tensor, path: Path, save: Save) -> Metered:
    """A step that trains, with a checkpoint after the first batch, and ends when both have."""

    def step() -> tuple[Path, Tensor]:
        train(weights, samples[0], targets[0])
        finish = save(weights, path)
        for x, y in zip(samples[1:], targets[1:]):
            train(weights, x, y)
        finish()
        return path, weights

    def metrics() -> dict[str, float]:
        device = torch.get_device_module(weights.device)

        def stall() -> None:
            finish.append(save(weights, path))
            device.synchronize()

        finish: list[Callable[[], None]] = []
        device.synchronize()
        stalled = median_ms(stall, 1)
        return {"stall ms": stalled, "until written ms": stalled + median_ms(finish[0], 1)}

    return Metered(step, metrics)


def blocking(weights: Tensor, path: Path) -> Callable[[], None]:
    write(weights, path)
    return lambda: None


def prepare(weights: Tensor, samples: Tensor, targets: Tensor, path: Path) -> Metered:
    return training(weights, samples, targets, path, blocking)
