"""Four threads of the training process decode ahead, as SPDL does; what is Python in it waits for one lock."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_dataloader_workers import BATCH, Texts, epoch
from ch05.baseline_dataloader_workers import workload as workload
from common.python.workload import Step

THREADS = 4


def prepare(files: list[Path], table: Tensor, gains: Tensor, head: Tensor) -> Step:
    texts, pool = Texts(files), ThreadPoolExecutor(THREADS)

    def batch(first: int) -> Tensor:
        tokens = torch.stack([texts[index] for index in range(first, min(first + BATCH, len(texts)))])
        return tokens.pin_memory() if table.is_cuda else tokens

    def step() -> Tensor:
        return epoch(pool.map(batch, range(0, len(texts), BATCH)), table, gains, head)

    return step
