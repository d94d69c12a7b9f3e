"""A SWITCH node runs the chosen expert's body alone; where experts have one shape, as here, an index is quicker."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ch12.baseline_expert_switch_node import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def release(discard: Callable[[int], None], graph: int, *_addressed: Tensor) -> None:
    discard(graph)


def prepare(x: Tensor, router: Tensor, up: Tensor, down: Tensor) -> Step:
    record, replay, discard = (load_cuda(__file__, name) for name in ("record", "replay", "discard"))
    out, rounded, hidden = torch.empty_like(x), up.new_empty(down.shape[2]), up.new_empty(down.shape[3])
    addressed = x, router, up, down, out, rounded, hidden
    executable = torch.empty(1, dtype=torch.int64, pin_memory=True)
    record(*addressed, *down.shape, executable)
    graph = int(executable)

    def step() -> Tensor:
        replay(graph)
        return out

    # The graph goes when its step does, and until then holds the tensors of which it has only the addresses.
    weakref.finalize(step, release, discard, graph, *addressed)
    return step
