"""A loop marks each prefetched batch by record_stream and runs ahead: no batch's memory is free before its use ends."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, chunks: int, rows: int, width: int) -> Inputs:
    """`batches` are on the host, page-locked where there is a copy engine to read them."""
    batches = draw.host.normal(chunks, rows, width)
    return {
        "batches": batches if draw.device.type == "cpu" else batches.pin_memory(),
        "mean": draw.normal(width),
    }


def reference(batches: Tensor, mean: Tensor) -> Tensor:
    centred = [batch.to(mean.device) - mean for batch in batches]
    return sum((batch.T @ batch for batch in centred), torch.zeros_like(mean)) / batches[..., 0].numel()


def cost(chunks: int, rows: int, width: int) -> Cost:
    """A covariance is symmetric: half of it is enough."""
    return Cost(
        pcie_bytes=4 * chunks * rows * width,
        flops=chunks * rows * width * (width + 1),
        write=4 * width * width,
        items=chunks,
        unit="batches",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # A batch is 64 MiB, 1.2 ms on PCIe 5; its product is 0.7 ms at the 51 TFLOP/s of cuBLAS. The covariance is 4 MiB.
    sizes={
        "bench": {"chunks": 12, "rows": 16384, "width": 1024},
        "test": {"chunks": 7, "rows": 29, "width": 37},
    },
    tolerance=3e-5,  # fp32 sums of some 200,000 products
    clock="end_to_end",
    goal="memory",
    isolated=True,  # what waits for an event counts as reserved, not as allocated
)


def accumulate(covariance: Tensor, batch: Tensor, mean: Tensor, count: int) -> None:
    batch.sub_(mean)
    covariance.addmm_(batch.T, batch, alpha=1 / count)


def prepare(batches: Tensor, mean: Tensor) -> Step:
    gpu, count = torch.get_device_module(mean.device), batches[..., 0].numel()
    covariance, fetch = mean.new_empty(len(mean), len(mean)), gpu.Stream()

    def step() -> Tensor:
        compute = gpu.current_stream()
        fetch.wait_stream(compute)  # nothing begins before the step does
        covariance.zero_()
        for batch in batches:
            with gpu.stream(fetch):
                arrived = torch.empty_like(batch, device=mean.device).copy_(batch, non_blocking=True)
            compute.wait_stream(fetch)
            if arrived.is_cuda:
                arrived.record_stream(compute)  # the allocator may hand it out again once `compute` is done so far
            accumulate(covariance, arrived, mean, count)
        return covariance

    return step
