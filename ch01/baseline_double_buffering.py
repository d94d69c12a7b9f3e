"""Copy a chunk in, multiply it, copy the next: PCIe rests while the GPU computes, and the GPU while PCIe works."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, chunks: int, rows: int, width: int, hidden: int) -> Inputs:
    """`batches` are on the host, page-locked where there is a copy engine to read them."""
    batches = draw.host.normal(chunks, rows, width, dtype=torch.bfloat16)
    return {
        "batches": batches if draw.device.type == "cpu" else batches.pin_memory(),
        "up": draw.normal(width, hidden, std=(2 / width) ** 0.5, dtype=torch.bfloat16),
        "down": draw.normal(hidden, width, std=hidden**-0.5, dtype=torch.bfloat16),
    }


def mlp(batch: Tensor, up: Tensor, down: Tensor, out: Tensor) -> None:
    torch.mm(torch.mm(batch, up).relu_(), down, out=out)


def reference(batches: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """One chunk at a time: the hidden activations of all of them would be 5 GB in float64."""
    return torch.stack([(batch @ up).relu_() @ down for batch in batches])


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda chunks, rows, width, hidden: Cost(
        pcie_bytes=2 * chunks * rows * width,
        flops=2 * 2 * chunks * rows * width * hidden,
        dtype="bf16",
        items=chunks,
        unit="chunks",
    ),
    # A chunk is 16 MiB, 0.30 ms on PCIe 5; its two products are 172 GFLOP, 0.25 ms at an H200's sustained rate.
    sizes={
        "bench": {"chunks": 32, "rows": 4096, "width": 2048, "hidden": 5120},
        "test": {"chunks": 7, "rows": 29, "width": 37, "hidden": 53},
    },
    tolerance=1e-2,  # bf16 rounds the hidden activations and the results, 2e-3 each
    clock="end_to_end",
)


def prepare(batches: Tensor, up: Tensor, down: Tensor) -> Step:
    arrived, results = up.new_empty(batches.shape[1:]), up.new_empty(batches.shape)

    def step() -> Tensor:
        for batch, result in zip(batches, results):
            arrived.copy_(batch, non_blocking=True)
            mlp(arrived, up, down, result)
        return results

    return step
