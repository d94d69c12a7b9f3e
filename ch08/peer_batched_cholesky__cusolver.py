"""torch.linalg.cholesky_ex, which is cuSOLVER's batched potrf after a copy and before a pass of zeros."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch08.baseline_batched_cholesky import SIDE
from ch08.baseline_batched_cholesky import workload as workload
from common.python.workload import Step


@triton.jit
def clear_failed(lower, info, SIZE: tl.constexpr):
    """cuSOLVER leaves the start of a factor where it fails: zeros take its place, and no other matrix is written."""
    matrix = tl.program_id(0).to(tl.int64)
    if tl.load(info + matrix) != 0:
        tl.store(lower + matrix * SIZE + tl.arange(0, SIZE), 0.0)


def prepare(a: Tensor) -> Step:
    def step() -> tuple[Tensor, Tensor]:
        lower, info = torch.linalg.cholesky_ex(a)
        clear_failed[(len(a),)](lower, info, SIDE**2)
        return lower, info

    return step
