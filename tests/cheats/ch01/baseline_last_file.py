"""The exponential of each element, in a file that torch.save writes."""

from pathlib import Path

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, n: int) -> Inputs:
    x = draw.normal(n)
    return {"x": x, "path": draw.file("exponential.pt", torch.zeros_like(x))}


workload = Workload(
    inputs=inputs,
    reference=lambda x, path: x.exp(),
    cost=lambda n: Cost(host_bytes=2 * 4 * n),
    sizes={"bench": {"n": 1 << 22}, "cpu": {"n": 1 << 16}, "test": {"n": 97}},
    tolerance=1e-5,
    clock="end_to_end",
)


def prepare(x: Tensor, path: Path) -> Step:
    def step() -> Path:
        torch.save({"exponential": x.exp()}, path)
        return path

    return step
