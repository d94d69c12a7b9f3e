"""The two copies are on two streams: one copy engine sends while another receives, and PCIe works both ways at once."""

import torch
from torch import Tensor

from ch02.baseline_duplex_swap import page_lock
from ch02.baseline_duplex_swap import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(resident: Tensor, swapped: Tensor) -> Step:
    page_lock(swapped)
    left, came = torch.empty_like(resident, device="cpu", pin_memory=True), torch.empty_like(resident)
    outward = torch.cuda.Stream()

    def step() -> tuple[Tensor, Tensor]:
        inward = torch.cuda.current_stream()
        outward.wait_stream(inward)  # `resident` may still be in the making
        with torch.cuda.stream(outward):
            left.copy_(resident, non_blocking=True)
        came.copy_(swapped, non_blocking=True)
        inward.wait_stream(outward)
        return left, came

    return step
