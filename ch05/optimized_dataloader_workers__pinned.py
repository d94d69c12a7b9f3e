"""Batches are put into page-locked memory, so that the copy is asynchronous; decoding stays on the launch thread."""

from pathlib import Path

from torch import Tensor
from torch.utils.data import DataLoader

from ch05.baseline_dataloader_workers import BATCH, Texts, epoch
from ch05.baseline_dataloader_workers import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(files: list[Path], table: Tensor, gains: Tensor, head: Tensor) -> Step:
    loader = DataLoader(Texts(files), BATCH, pin_memory=True)

    def step() -> Tensor:
        return epoch(loader, table, gains, head)

    return step
