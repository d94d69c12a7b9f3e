"""The source is page-locked where it lies, once: the copy engine reads it directly, no CPU copy between."""

import weakref

import torch
from torch import Tensor

from ch01.baseline_pinned_copy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def page_lock(host: Tensor) -> None:
    """Page-lock the memory of `host` until `host` is freed; a second call finds it done."""
    if not host.is_pinned():
        cudart = torch.cuda.cudart()
        torch.cuda.check_error(cudart.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
        weakref.finalize(host, cudart.cudaHostUnregister, host.data_ptr())  # before its address is reused


def prepare(host: Tensor, device: Tensor) -> Step:
    page_lock(host)

    def step() -> Tensor:
        return device.copy_(host, non_blocking=True)

    return step
