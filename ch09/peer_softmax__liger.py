"""Liger's Triton softmax, which training code uses as a drop-in for torch's."""

from torch import Tensor

from ch09.baseline_softmax import workload as workload
from common.python.requirements import imported, needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)
ops = imported("liger_kernel.ops", without="peft")


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return ops.LigerSoftmaxFunction.apply(x)

    return step
