"""Pointers and numbers change, so the graph of 500 kernels is captured and instantiated anew for each step."""

import weakref

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, kernels: int, slots: int, n: int) -> Inputs:
    """Which of the fields it is, and a rate for each kernel, are known on the host."""
    return {
        "fields": draw.normal(slots, n),
        "rates": draw.host.uniform(kernels, high=0.01),
        "slot": draw.host.integers(1, high=slots),
    }


def reference(fields: Tensor, rates: Tensor, slot: Tensor) -> Tensor:
    x = field = fields[int(slot)]
    for rate in rates.tolist():
        x = (1 - rate) * x.roll(-1) + rate * field
    return x


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda kernels, slots, n: Cost(read=4 * n, write=4 * n, flops=3 * kernels * n),
    sizes={"bench": {"kernels": 500, "slots": 64, "n": 4096}, "test": {"kernels": 7, "slots": 3, "n": 301}},
    tolerance=1e-5,  # fp32, 500 roundings
    clock="end_to_end",
)


def stepping(file: str, fields: Tensor, rates: Tensor, slot: Tensor) -> Step:
    """A step by the .cu file beside `file`: its `make_state` makes a state, `run` uses it, and `discard` frees it."""
    make, run, discard = (load_cuda(file, name) for name in ("make_state", "run", "discard"))
    out, scratch = fields.new_empty(2, fields.shape[1])
    numbers = torch.empty_like(rates, pin_memory=True)
    made = torch.empty(1, dtype=torch.int64, pin_memory=True)
    make(made)
    state = int(made)

    def step() -> Tensor:
        numbers.copy_(rates)
        run(state, fields[int(slot)], numbers, out, scratch, len(out), len(numbers))
        return out

    weakref.finalize(step, discard, state)
    return step


def prepare(fields: Tensor, rates: Tensor, slot: Tensor) -> Step:
    return stepping(__file__, fields, rates, slot)
