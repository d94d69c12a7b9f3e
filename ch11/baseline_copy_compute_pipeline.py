"""Copy in, compute, copy out, chunk by chunk on one stream: one unit works, and the other two wait for their turn."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, chunks: int, rows: int, width: int) -> Inputs:
    """`batches` are on the host, page-locked where there is a copy engine to read them."""
    batches = draw.host.normal(chunks, rows, width)
    return {
        "batches": batches if draw.device.type == "cpu" else batches.pin_memory(),
        "first": draw.normal(width, width, std=(2 / width) ** 0.5),
        "second": draw.normal(width, width, std=width**-0.5),
    }


def mlp(batch: Tensor, first: Tensor, second: Tensor, hidden: Tensor, out: Tensor) -> None:
    torch.mm(batch, first, out=hidden)
    torch.mm(hidden.relu_(), second, out=out)


workload = Workload(
    inputs=inputs,
    reference=lambda batches, first, second: (batches @ first).relu() @ second,
    cost=lambda chunks, rows, width: Cost(
        pcie_bytes=4 * chunks * rows * width,
        flops=2 * 2 * chunks * rows * width**2,
        items=chunks,
        unit="chunks",
    ),
    # A chunk is 16 MiB, 0.30 ms on PCIe 5 each way; its two products in fp32 are 0.34 ms at the 51 TFLOP/s of cuBLAS.
    sizes={
        "bench": {"chunks": 32, "rows": 4096, "width": 1024},
        "test": {"chunks": 7, "rows": 29, "width": 37},
    },
    tolerance=1e-5,
    clock="end_to_end",
)


def prepare(batches: Tensor, first: Tensor, second: Tensor) -> Step:
    results = torch.empty_like(batches, pin_memory=batches.is_pinned())
    arrived, hidden, computed = (first.new_empty(batches.shape[1:]) for _ in range(3))

    def step() -> Tensor:
        for batch, result in zip(batches, results):
            arrived.copy_(batch, non_blocking=True)
            mlp(arrived, first, second, hidden, computed)
            result.copy_(computed, non_blocking=True)
        return results

    return step
