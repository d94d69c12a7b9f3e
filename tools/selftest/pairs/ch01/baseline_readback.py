"""The host reads a value back after each of many small kernels, and launches the next one only then."""

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, rows, n: {"a": draw.normal(rows, n)},
    reference=lambda a: a.square().sum(1),
    cost=lambda rows, n: Cost(flops=2 * rows * n, dtype="fp32", read=4 * rows * n),
    sizes={"bench": {"rows": 16, "n": 4096}, "cpu": {"rows": 16, "n": 4096}, "test": {"rows": 3, "n": 67}},
    tolerance=1e-5,
    clock="end_to_end",
)


def prepare(a: Tensor) -> Step:
    return lambda: torch.tensor([torch.dot(row, row).item() for row in a], device=a.device)
