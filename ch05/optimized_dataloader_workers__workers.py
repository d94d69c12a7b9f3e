"""Four worker processes decode ahead of need, each with its own interpreter; batches arrive in pageable memory."""

from pathlib import Path

from torch import Tensor
from torch.utils.data import DataLoader

from ch05.baseline_dataloader_workers import BATCH, Texts, epoch
from ch05.baseline_dataloader_workers import workload as workload
from common.python.workload import Step

WORKERS = 4


def prepare(files: list[Path], table: Tensor, gains: Tensor, head: Tensor) -> Step:
    loader = DataLoader(
        Texts(files), BATCH, num_workers=WORKERS, persistent_workers=True, multiprocessing_context="fork"
    )

    def step() -> Tensor:
        return epoch(loader, table, gains, head)

    return step
