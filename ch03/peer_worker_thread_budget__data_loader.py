"""torch's DataLoader with eight persistent workers: each of them has one thread, and sends spectra by its queue."""

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ch03.baseline_worker_thread_budget import WORKERS, spectrum
from ch03.baseline_worker_thread_budget import workload as workload
from common.python.workload import Step


class Spectra(Dataset[Tensor]):
    """An item for each worker: the spectra of all its clips, which lie in memory that the workers see as it changes."""

    def __init__(self, clips: Tensor, filters: Tensor, bands: Tensor) -> None:
        self.clips, self.filters, self.bands = clips, filters, bands

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> Tensor:
        return torch.stack([spectrum(clip, self.filters, self.bands) for clip in self.clips[index]])


def prepare(clips: Tensor, filters: Tensor, bands: Tensor) -> Step:
    loader = DataLoader(
        Spectra(clips, filters, bands),
        batch_size=None,
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context="fork",
    )

    def step() -> Tensor:
        return torch.stack(list(loader))

    return step
