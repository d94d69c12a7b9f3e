"""Ten graphs stay instantiated: while the GPU runs one, the host sets pointers and numbers in the next one's nodes."""

from torch import Tensor

from ch12.baseline_graph_exec_update import stepping
from ch12.baseline_graph_exec_update import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(fields: Tensor, rates: Tensor, slot: Tensor) -> Step:
    return stepping(__file__, fields, rates, slot)
