"""A cluster of eight blocks keeps the row on chip from its one read to its one write, and meets through DSMEM."""

from torch import Tensor, empty_like

from ch10.baseline_softmax_dsmem import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)


def prepare(x: Tensor) -> Step:
    softmax, out = load_cuda(__file__, "softmax"), empty_like(x)

    def step() -> Tensor:
        softmax(x, out, *x.shape)
        return out

    return step
