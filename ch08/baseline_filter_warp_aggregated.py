"""Each number that is kept adds one to the same counter to learn its place: all warps of the GPU queue there."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import AnyOrder, Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, n: int) -> Inputs:
    """Normal noise in random order, of which just half, `room` numbers, are above zero."""
    sizes, room = draw.normal(n).abs_().add_(1e-3), -(-n // 2)
    sizes[room:].neg_()
    return {"x": sizes[draw.permutation(n)], "room": room}


def reference(x: Tensor, room: int) -> tuple[AnyOrder, Tensor]:
    """The numbers above zero, in any order, and how many they are."""
    kept = x[x > 0]
    return AnyOrder(kept), torch.tensor([len(kept)], device=x.device)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda n: Cost(read=4 * n, write=4 * -(-n // 2), items=n, unit="numbers"),
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 70003}},
    tolerance=0.0,  # they are copied
)


def prepare(x: Tensor, room: int) -> Step:
    keep, out, count = load_cuda(__file__, "filter"), x.new_empty(room), x.new_empty(1, dtype=torch.int32)

    def step() -> tuple[AnyOrder, Tensor]:
        keep(x, out, count, len(x), room)
        return AnyOrder(out), count

    return step
