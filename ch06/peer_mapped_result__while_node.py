"""A CUDA graph whose WHILE node decides on the device: the host is not asked, where its decision is that simple."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ch06.baseline_mapped_result import SMALL
from ch06.baseline_mapped_result import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def release(discard: Callable[[int], None], graph: int, *_addressed: Tensor) -> None:
    discard(graph)


def prepare(mean: Tensor, eccentricity: Tensor) -> Step:
    record, replay, discard = (load_cuda(__file__, name) for name in ("record", "replay", "discard"))
    anomaly, iterations = torch.empty_like(mean), mean.new_empty(1, dtype=torch.int32)
    executable = torch.empty(1, dtype=torch.int64, pin_memory=True)
    record(mean, eccentricity, anomaly, iterations, len(mean), SMALL, executable)
    graph = int(executable)

    def step() -> Tensor:
        replay(graph)
        return anomaly

    # The graph goes when its step does, and until then holds the tensors of which it has only the addresses.
    weakref.finalize(step, release, discard, graph, mean, eccentricity, iterations)
    return step
