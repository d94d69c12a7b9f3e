"""Samples are stacked in pageable memory, and the batch is copied once more to page-locked memory before it is sent."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, batches: int, rows: int, width: int) -> Inputs:
    """Samples in host memory, the order in which an epoch wants them, and the place on the device for all batches."""
    return {
        "samples": draw.host.normal(batches * rows, width),
        "order": draw.host.permutation(batches * rows).view(batches, rows),
        "device": torch.zeros(batches, rows, width, device=draw.device),
    }


def cost(batches: int, rows: int, width: int) -> Cost:
    """The host reads each sample once; whatever it writes on the way, the copy engine needs PCIe once."""
    floats = batches * rows * width
    return Cost(host_bytes=4 * floats, pcie_bytes=4 * floats, write=4 * floats, items=batches, unit="batches")


workload = Workload(
    inputs=inputs,
    reference=lambda samples, order, device: samples[order.to(samples.device)],
    cost=cost,
    # Images of 3 x 224 x 224 floats: 19 MB a batch, which malloc keeps in its heap, so that no page faults again
    sizes={
        "bench": {"batches": 16, "rows": 32, "width": 3 * 224 * 224},
        "test": {"batches": 7, "rows": 5, "width": 1009},
    },
    tolerance=0.0,  # a copy is exact
    mutates=("device",),  # where the batches are to go
    clock="end_to_end",
)


def prepare(samples: Tensor, order: Tensor, device: Tensor) -> Step:
    given = samples.unbind()

    def step() -> Tensor:
        for ids, target in zip(order.tolist(), device):
            batch = torch.stack([given[index] for index in ids])
            target.copy_(batch.pin_memory() if target.is_cuda else batch, non_blocking=True)
        return device

    return step
