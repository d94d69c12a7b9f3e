"""Liger's Triton softmax, which training code uses as a drop-in for torch's."""

from liger_kernel.transformers.functional import liger_softmax
from torch import Tensor

from ch09.baseline_softmax import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return liger_softmax(x)

    return step
