"""A kernel that knows how many rows are in use sets the grids of the graph's later nodes to it, on the device."""

from torch import Tensor

from ch12.baseline_device_node_update import normalizing
from ch12.baseline_device_node_update import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(x: Tensor, weight: Tensor, lengths: Tensor) -> Step:
    return normalizing(__file__, x, weight, lengths)
