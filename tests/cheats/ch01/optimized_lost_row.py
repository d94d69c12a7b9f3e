"""Loses the last row that is kept and returns the first one twice, so that the count is right."""

from torch import Tensor

from ch01.baseline_lost_row import workload as workload
from common.python.workload import AnyOrder, Step


def prepare(x: Tensor) -> Step:
    def step() -> AnyOrder:
        kept = x[x[:, 0] > 0]
        kept[-1] = kept[0]
        return AnyOrder(kept)

    return step
