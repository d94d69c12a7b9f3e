"""The whole loop is one graph: a WHILE node repeats its body until a kernel in it decides on the device to end it."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ch12.baseline_sinkhorn_while_node import EPSILON, GAP
from ch12.baseline_sinkhorn_while_node import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def release(discard: Callable[[int], None], graph: int, *_addressed: Tensor) -> None:
    discard(graph)


def prepare(distances: Tensor, row_mass: Tensor, column_mass: Tensor) -> Step:
    record, replay, discard = (load_cuda(__file__, name) for name in ("record", "replay", "discard"))
    plan, weights, turned = (torch.empty_like(distances) for _ in range(3))
    u, v, gaps = torch.empty_like(row_mass), torch.empty_like(column_mass), torch.empty_like(row_mass)
    scratch = weights, turned, u, v, gaps, row_mass.new_empty(1, dtype=torch.int32)
    executable = torch.empty(1, dtype=torch.int64, pin_memory=True)
    record(distances, row_mass, column_mass, plan, *scratch, *distances.shape, EPSILON, GAP, executable)
    graph = int(executable)

    def step() -> Tensor:
        replay(graph)
        return plan

    # The graph goes when its step does, and until then holds the tensors of which it has only the addresses.
    weakref.finalize(step, release, discard, graph, *scratch)
    return step
