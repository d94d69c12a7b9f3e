"""Four persistent workers decode batches ahead of need, and a thread page-locks them: handing them over remains."""

from pathlib import Path

from torch import Tensor
from torch.utils.data import DataLoader

from ch05.baseline_dataloader_workers import BATCH, Texts, epoch
from ch05.baseline_dataloader_workers import workload as workload
from common.python.workload import Step

WORKERS = 4  # decoding a batch takes about as long as the network on it: two keep up, four ride out a slow host


def prepare(files: list[Path], table: Tensor, gains: Tensor, head: Tensor) -> Step:
    loader = DataLoader(
        Texts(files),
        BATCH,
        num_workers=WORKERS,
        persistent_workers=True,  # else every epoch begins with four forks
        pin_memory=table.is_cuda,
        prefetch_factor=4,
        multiprocessing_context="fork",  # forkserver, where it is the default, imports torch for seconds
    )

    def step() -> Tensor:
        return epoch(loader, table, gains, head)

    return step
