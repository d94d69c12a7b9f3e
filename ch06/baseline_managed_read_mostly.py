"""GPU and host read one managed table in turn: its pages go to and fro in every step, with a fault for each group."""

import ctypes
import weakref

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, n: int, count: int, host_count: int) -> Inputs:
    """A table that stays, and what the GPU and the host look up in it; both touch nearly all of its pages."""
    return {
        "table": draw.host.normal(n),
        "ids": draw.integers(count, high=n),
        "host_ids": draw.host.integers(host_count, high=n),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda table, ids, host_ids: (table[ids], table[host_ids]),
    cost=lambda n, count, host_count: Cost(read=12 * count, write=4 * count, host_bytes=16 * host_count),
    sizes={
        "bench": {"n": 1 << 23, "count": 1 << 18, "host_count": 1 << 14},  # a table of 32 MiB
        "test": {"n": 20011, "count": 1003, "host_count": 307},
    },
    tolerance=0.0,  # a copy is exact
    frozen=("table",),
    clock="end_to_end",
)


def managed(values: Tensor) -> Tensor:
    """A copy of `values` in managed memory: a tensor of the host, which the GPU may use at the same address."""
    address = torch.empty(1, dtype=torch.int64, pin_memory=True)
    load_cuda(__file__, "allocate")(address, values.nbytes)
    memory = (ctypes.c_byte * values.nbytes).from_address(address.item())
    weakref.finalize(memory, load_cuda(__file__, "release"), address.item())  # with the last tensor that uses it
    return torch.frombuffer(memory, dtype=values.dtype).view_as(values).copy_(values)


def reading(table: Tensor, host_table: Tensor, ids: Tensor, host_ids: Tensor) -> Step:
    """A step in which the GPU looks up in `table`, and after it the host in `host_table`."""
    look_up = load_cuda(__file__, "look_up")
    out, host_out = torch.empty(len(ids), device=ids.device), torch.empty(len(host_ids))

    def step() -> tuple[Tensor, Tensor]:
        of_host = host_table.data_ptr(), host_ids.data_ptr(), host_out.data_ptr(), len(host_ids)
        look_up(table.data_ptr(), ids, out, len(ids), *of_host)
        return out, host_out

    return step


def prepare(table: Tensor, ids: Tensor, host_ids: Tensor) -> Step:
    shared = managed(table)
    return reading(shared, shared, ids, host_ids)
