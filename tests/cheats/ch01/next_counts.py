"""Each count plus one, in a file of bytes."""

from pathlib import Path

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, n: int) -> Inputs:
    counts = draw.host.integers(n, high=128, dtype=torch.uint8)
    return {"counts": counts, "path": draw.file("next.bin", torch.zeros_like(counts))}


workload = Workload(
    inputs=inputs,
    reference=lambda counts, path: counts + 1,
    cost=lambda n: Cost(host_bytes=2 * n),
    sizes={"bench": {"n": 1 << 24}, "cpu": {"n": 1 << 18}, "test": {"n": 97}},
    tolerance=0.0,
    clock="end_to_end",
)


def prepare(counts: Tensor, path: Path) -> Step:
    def step() -> Path:
        path.write_bytes((counts + 1).numpy().tobytes())
        return path

    return step
