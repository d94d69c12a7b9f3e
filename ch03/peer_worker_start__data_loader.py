"""torch's DataLoader with persistent_workers: its processes are kept as well, and records come back as tensors."""

from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ch03.baseline_worker_start import read
from ch03.baseline_worker_start import workload as workload
from common.python.workload import Step


class Records(Dataset[Tensor]):
    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(read(self.files[index]))


def prepare(files: list[Path]) -> Step:
    loader = DataLoader(Records(files), batch_size=None, num_workers=len(files), persistent_workers=True)

    def step() -> Tensor:
        return torch.stack(list(loader))

    return step
