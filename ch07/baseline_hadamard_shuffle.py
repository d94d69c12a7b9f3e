"""Butterflies in shared memory, two numbers a thread: seven stages, and a barrier of the block before each of them."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
COLUMNS = 128  # the width of an attention head


def hadamard(like: Tensor) -> Tensor:
    """The rotation as a matrix, which is its own inverse: entries of both signs, of size 1 / sqrt(128)."""
    matrix = torch.ones(1, 1, dtype=torch.float64, device=like.device)
    while len(matrix) < COLUMNS:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (matrix / COLUMNS**0.5).to(like.dtype)


workload = Workload(
    inputs=lambda draw, rows: {"x": draw.normal(rows, COLUMNS, dtype=torch.bfloat16)},
    reference=lambda x: x @ hadamard(x),
    cost=lambda rows: Cost(read=2 * rows * COLUMNS, write=2 * rows * COLUMNS),
    sizes={"bench": {"rows": 1 << 21}, "test": {"rows": 45}},
    tolerance=4e-3,  # rounding to bf16 is off by 1.7e-3
)


def prepare(x: Tensor) -> Step:
    rotate, out = load_cuda(__file__, "rotate_rows"), torch.empty_like(x)

    def step() -> Tensor:
        rotate(x, out, len(x))
        return out

    return step
