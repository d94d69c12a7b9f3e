"""One buffer leaves for the host, then another comes back, on one stream: PCIe has two directions, and one idles."""

import weakref

import torch
from torch import Tensor

from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(gpus=1)

workload = Workload(
    inputs=lambda draw, n: {"resident": draw.normal(n), "swapped": draw.host.normal(n)},
    reference=lambda resident, swapped: (resident, swapped.to(resident.device)),
    cost=lambda n: Cost(pcie_bytes=4 * n, read=4 * n, write=4 * n),  # each way
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 1027}},
    tolerance=0.0,  # a copy is exact
    mutates=("swapped",),  # page-locking changes its memory, so each variant has its own
    clock="end_to_end",
)


def page_lock(host: Tensor) -> None:
    """Page-lock the memory of `host` where it lies, until `host` is freed: only so can a copy engine read it."""
    if not host.is_pinned():
        cudart = torch.cuda.cudart()
        torch.cuda.check_error(cudart.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
        weakref.finalize(host, cudart.cudaHostUnregister, host.data_ptr())  # before its address is reused


def prepare(resident: Tensor, swapped: Tensor) -> Step:
    page_lock(swapped)
    left, came = torch.empty_like(resident, device="cpu", pin_memory=True), torch.empty_like(resident)

    def step() -> tuple[Tensor, Tensor]:
        left.copy_(resident, non_blocking=True)
        came.copy_(swapped, non_blocking=True)
        return left, came

    return step
