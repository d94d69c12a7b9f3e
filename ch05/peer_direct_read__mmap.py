"""The file is mapped, as safetensors and torch.load(mmap=True) do: the copy to the GPU faults in page after page."""

from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_direct_read import workload as workload
from common.python.workload import Step


def prepare(path: Path, device: Tensor) -> Step:
    def step() -> Tensor:
        return device.copy_(torch.from_file(str(path), size=len(device), dtype=device.dtype))

    return step
