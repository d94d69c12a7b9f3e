"""Two tables, one on each side, copied ahead by hand: nothing is managed, so nothing can move."""

from torch import Tensor

from ch06.baseline_managed_read_mostly import reading
from ch06.baseline_managed_read_mostly import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(table: Tensor, ids: Tensor, host_ids: Tensor) -> Step:
    return reading(table.to(ids.device), table, ids, host_ids)
