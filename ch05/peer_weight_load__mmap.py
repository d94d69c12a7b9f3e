"""torch.load with mmap: no host copy is made, and one thread of the driver copies from the mapped pages."""

import torch
from torch import Tensor

from ch05.baseline_weight_load import workload as workload
from common.python.workload import Step


def prepare(path: str, parameters: dict[str, Tensor]) -> Step:
    def step() -> tuple[Tensor, ...]:
        state = torch.load(path, mmap=True, map_location="cpu", weights_only=True)
        return tuple(there.copy_(state[name]) for name, there in parameters.items())

    return step
