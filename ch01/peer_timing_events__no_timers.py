"""The network without any timers: the time that every way of measuring is held against."""

from torch import Tensor

from ch01.baseline_timing_events import network
from ch01.baseline_timing_events import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, ups: list[Tensor], downs: list[Tensor]) -> Step:
    def step() -> Tensor:
        return network(x, ups, downs)

    return step
