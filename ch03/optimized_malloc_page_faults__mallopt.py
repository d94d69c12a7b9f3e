"""mallopt keeps freed memory in the heap: once the first batches have faulted its pages in, none faults again."""

import ctypes

import torch
from torch import Tensor

from ch03.baseline_malloc_page_faults import workload as workload
from common.python.workload import Step

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h


def prepare(pixels: Tensor, mean: Tensor, std: Tensor) -> Step:
    torch.set_num_threads(1)  # as in a DataLoader worker
    mallopt = ctypes.CDLL(None).mallopt
    # No mappings and no trimming. M_MMAP_THRESHOLD is the gentler dial, but mallopt(3) ends it at 32 MiB, below our 37.
    if not (mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1)):
        raise RuntimeError("mallopt refused M_MMAP_MAX or M_TRIM_THRESHOLD: this C library is not glibc")

    def step() -> Tensor:
        return (pixels.float() / 255 - mean) / std

    return step
