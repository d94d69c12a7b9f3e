"""The loop stops for a copy to page-locked memory, made once; a thread writes that to disk while training goes on."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from ch05.baseline_async_checkpoint import training, write
from ch05.baseline_async_checkpoint import workload as workload
from common.python.workload import Metered


def prepare(weights: Tensor, samples: Tensor, targets: Tensor, path: Path) -> Metered:
    gpu, writer = torch.get_device_module(weights.device), ThreadPoolExecutor(1)
    snapshot = torch.empty_like(weights, device="cpu", pin_memory=weights.is_cuda)
    copied = gpu.Event()

    def write_copied(path: Path) -> None:
        copied.synchronize()
        write(snapshot, path)

    def save(weights: Tensor, path: Path) -> Callable[[], None]:
        snapshot.copy_(weights, non_blocking=True)  # on the stream that trains: the next step changes the weights
        copied.record()
        return writer.submit(write_copied, path).result

    return training(weights, samples, targets, path, save)
