"""A level is the body of a WHILE node: its grid cannot change, so as many blocks as fit share each level's vertices."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ch12.baseline_bfs_tail_launch import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def release(discard: Callable[[int], None], graph: int, *_addressed: Tensor) -> None:
    discard(graph)


def prepare(offsets: Tensor, targets: Tensor, source: Tensor) -> Step:
    record, replay, discard = (load_cuda(__file__, name) for name in ("record", "replay", "discard"))
    distances, order = (offsets.new_empty(len(offsets) - 1) for _ in range(2))
    addressed = offsets, targets, source, distances, order, offsets.new_empty(5)
    made = torch.empty(1, dtype=torch.int64, pin_memory=True)
    record(*addressed, made, len(distances))
    graph = int(made)

    def step() -> Tensor:
        replay(graph)
        return distances

    # The graph goes when its step does, and until then holds the tensors of which it has only the addresses.
    weakref.finalize(step, release, discard, graph, *addressed)
    return step
