"""Liger's Triton softmax, which training code uses as a drop-in for torch's."""

from liger_kernel.ops import LigerSoftmaxFunction
from torch import Tensor

from ch09.baseline_softmax import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return LigerSoftmaxFunction.apply(x)

    return step
