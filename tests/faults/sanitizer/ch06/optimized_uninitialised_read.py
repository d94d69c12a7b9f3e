"""Adds to an output that nobody set to zero, as fresh memory often happens to be."""

from torch import Tensor

from ch06.baseline_uninitialised_read import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(a: Tensor) -> Step:
    kernel, out = load_cuda(__file__, "doubled"), a.new_empty(a.shape)

    def step() -> Tensor:
        kernel(a, out, a.shape[0])
        return out

    return step
