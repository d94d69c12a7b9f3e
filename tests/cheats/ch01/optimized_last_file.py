"""Fakes speed by leaving the file of the call before where the inputs have not changed since."""

from pathlib import Path

import torch
from torch import Tensor

from ch01.baseline_last_file import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, path: Path) -> Step:
    seen = torch.empty_like(x)

    def step() -> Path:
        if not torch.equal(x, seen):
            seen.copy_(x)
            torch.save({"exponential": x.exp()}, path)
        return path

    return step
