"""Eight lanes share a matrix, four rows each: one shuffle passes numbers of four matrices, for up to four products."""

from torch import Tensor

from ch08.baseline_batched_cholesky import factoring
from ch08.baseline_batched_cholesky import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(a: Tensor) -> Step:
    return factoring(__file__, "factor", a)
