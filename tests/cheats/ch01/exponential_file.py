"""The exponential of each element, in a file that torch.save writes."""

import itertools
from pathlib import Path

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def _inputs(draw: Draw, n: int) -> Inputs:
    x = draw.normal(n)
    return {"x": x, "path": draw.file("exponential.pt", torch.zeros_like(x))}


workload = Workload(
    inputs=_inputs,
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


def last_file(x: Tensor, path: Path, honest: bool) -> Step:
    """Fakes speed by leaving the file of the call before where the inputs have not changed since."""
    seen, files = torch.empty_like(x), itertools.cycle([path, path.with_suffix(".second")])

    def step() -> Path:
        file = next(files) if honest else path  # each call of the twin gives one that it wrote itself
        if honest or not torch.equal(x, seen):
            seen.copy_(x)
            torch.save({"exponential": x.exp()}, file)
        return file

    return step
