"""An IF node holds the update, and no host looks; for one short kernel, as here, a flag on the device is quicker."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ch12.baseline_amp_skip_if_node import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def release(discard: Callable[[int], None], graph: int, *_addressed: Tensor) -> None:
    discard(graph)


def prepare(
    gradients: Tensor, parameters: Tensor, means: Tensor, squares: Tensor, scale: Tensor, updates: Tensor
) -> Step:
    record, replay, discard = (load_cuda(__file__, name) for name in ("record", "replay", "discard"))
    state, found = (parameters, means, squares, scale, updates), scale.new_zeros(2, dtype=torch.int32)
    executable = torch.empty(1, dtype=torch.int64, pin_memory=True)
    record(gradients, *state, found, *gradients.shape, executable)
    graph = int(executable)

    def step() -> tuple[Tensor, ...]:
        replay(graph)
        return state

    # The graph goes when its step does, and until then holds the tensors of which it has only the addresses.
    weakref.finalize(step, release, discard, graph, gradients, *state, found)
    return step
