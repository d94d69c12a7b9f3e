"""Thirty small tensors that a decode step needs are sent one by one: each copy is over before the next one begins."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

# Types in turn, as lengths, places, sampling settings and flags have them.
KINDS = [torch.int32, torch.int64, torch.float32, torch.bool, torch.int64, torch.float32]


def inputs(draw: Draw, tensors: int, requests: int) -> Inputs:
    """`metadata` is what the scheduler has just written: on the host, not page-locked, of several types and lengths.

    `latest`, the last step's tokens, only says where it has to go.
    """
    kinds = [KINDS[index % len(KINDS)] for index in range(tensors)]
    drawn = [draw.host.integers(requests + index % 3, high=100_000) for index in range(tensors)]
    written = [(values % 2 if kind == torch.bool else values).to(kind) for values, kind in zip(drawn, kinds)]
    return {"metadata": written, "latest": draw.integers(requests, high=100_000)}


def cost(tensors: int, requests: int) -> Cost:
    sizes = (KINDS[index % len(KINDS)].itemsize * (requests + index % 3) for index in range(tensors))
    return Cost(pcie_bytes=sum(sizes), items=tensors, unit="tensors")


workload = Workload(
    inputs=inputs,
    reference=lambda metadata, latest: tuple(metadata),
    cost=cost,
    sizes={"bench": {"tensors": 30, "requests": 256}, "test": {"tensors": 13, "requests": 7}},
    tolerance=0.0,  # a copy is exact
    clock="end_to_end",
)


def prepare(metadata: list[Tensor], latest: Tensor) -> Step:
    def step() -> tuple[Tensor, ...]:
        return tuple(tensor.to(latest.device, copy=True) for tensor in metadata)

    return step
