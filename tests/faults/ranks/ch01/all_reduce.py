"""What the baselines share: a sum over all ranks. Each states for how many GPUs it is, which is read from its text."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Step

PROBLEM = {
    "inputs": lambda draw, n: {"a": draw.normal(n)},
    "reference": lambda rank, a: sum(a),
    "cost": lambda n: Cost(nvlink_bytes=4 * n),
    "sizes": {"bench": {"n": 1 << 22}, "cpu": {"n": 1 << 12}, "test": {"n": 67}},
    "tolerance": 1e-6,
}


def prepare(a: Tensor) -> Step:
    return prepare_with(lambda: None, a)


def prepare_with(fault: Callable[[], object], a: Tensor) -> Step:
    """The sum, before which rank 1 does what is wrong."""
    out = torch.empty_like(a)

    def step() -> Tensor:
        out.copy_(a)
        if dist.get_rank() == 1:
            fault()
        dist.all_reduce(out)
        return out

    return step
