"""torch.load reads the checkpoint into new host memory, all of it, and then a thread of the driver copies it again."""

import os

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, layers: int, n: int) -> Inputs:
    """Where the checkpoint is, and the parameters on the device that it is for.

    The path is a str, so the harness leaves the file in the page cache, as one is that has just been downloaded.
    """
    path = draw.scratch / "weights.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = {f"layers.{index}": draw.normal(n, dtype=torch.bfloat16) for index in range(layers)}
    with path.open("wb") as file:
        torch.save({name: weight.cpu() for name, weight in drawn.items()}, file)
        file.flush()
        os.fsync(file.fileno())  # so that the disk does not write while a step is timed
    return {"path": str(path), "parameters": {name: torch.zeros_like(weight) for name, weight in drawn.items()}}


def reference(path: str, parameters: dict[str, Tensor]) -> tuple[Tensor, ...]:
    state = torch.load(path, map_location="cpu", weights_only=True)
    return tuple(state[name].to(there.device) for name, there in parameters.items())


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda layers, n: Cost(
        host_bytes=2 * layers * n, pcie_bytes=2 * layers * n, write=2 * layers * n, items=layers, unit="tensors"
    ),
    sizes={"bench": {"layers": 16, "n": 1 << 23}, "test": {"layers": 19, "n": 1009}},  # 256 MiB in bf16
    tolerance=0.0,  # a copy is exact
    mutates=("parameters",),
    clock="end_to_end",
)


def prepare(path: str, parameters: dict[str, Tensor]) -> Step:
    def step() -> tuple[Tensor, ...]:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return tuple(there.copy_(state[name]) for name, there in parameters.items())

    return step
