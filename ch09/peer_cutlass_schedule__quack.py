"""QuACK's product, written in CuTe's Python: it times its tiles, clusters and schedules, and keeps the fastest."""

from quack.gemm_interface import gemm
from torch import Tensor

from ch09.baseline_cutlass_schedule import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["quack"], sm=90)


def prepare(a: Tensor, b: Tensor) -> Step:
    out = a.new_empty(a.shape[0], b.shape[0])

    def step() -> Tensor:
        gemm(a, b.T, out=out)
        return out

    step()  # which compiles and times all forms; later calls find the fastest
    return step
