"""QuACK's softmax, written in CuTe's Python: it too spreads a long row over a cluster."""

from quack.softmax import softmax
from torch import Tensor

from ch10.baseline_softmax_dsmem import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["quack"], sm=90)


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return softmax(x)

    return step
