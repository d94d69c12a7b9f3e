"""The kernel touches pages that are still in host memory: each group is a fault that the driver must answer."""

import ctypes
import weakref

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, n: {"values": draw.host.normal(n)},
    reference=lambda values: 0.5 * values + 1.0,
    cost=lambda n: Cost(pcie_bytes=4 * n, flops=2 * n),  # each way; no byte need enter the GPU's own memory
    sizes={"bench": {"n": 1 << 25}, "test": {"n": 20011}},
    tolerance=1e-6,  # one rounding to fp32 is off by 3e-8
    mutates=("values",),  # a variant moves its copy into the kind of memory that it is about
    clock="end_to_end",
    rungs="whole chunks",
)


def managed(values: Tensor) -> Tensor:
    """A copy of `values` in managed memory: a tensor of the host, which the GPU may use at the same address."""
    address = torch.empty(1, dtype=torch.int64, pin_memory=True)
    load_cuda(__file__, "allocate")(address, values.nbytes)
    memory = (ctypes.c_byte * values.nbytes).from_address(address.item())
    weakref.finalize(memory, load_cuda(__file__, "release"), address.item())  # with the last tensor that uses it
    return torch.frombuffer(memory, dtype=values.dtype).view_as(values).copy_(values)


def prepare(values: Tensor) -> Step:
    decay = load_cuda(__file__, "decay_on_demand")
    values.set_(managed(values))

    def step() -> Tensor:
        decay(values.data_ptr(), values.numel())
        return values

    return step
