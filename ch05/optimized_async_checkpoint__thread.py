"""The state is copied to pageable memory, for which the loop waits; a thread writes that while training goes on."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch import Tensor

from ch05.baseline_async_checkpoint import training, write
from ch05.baseline_async_checkpoint import workload as workload
from common.python.workload import Metered


def prepare(weights: Tensor, samples: Tensor, targets: Tensor, path: Path) -> Metered:
    writer = ThreadPoolExecutor(1)

    def save(weights: Tensor, path: Path) -> Callable[[], None]:
        snapshot = weights.to("cpu", copy=True)  # of a tensor on the CPU, cpu() is the tensor itself, which goes on
        return writer.submit(write, snapshot, path).result

    return training(weights, samples, targets, path, save)
