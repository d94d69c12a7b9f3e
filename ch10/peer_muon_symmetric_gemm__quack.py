"""QuACK's symmetric product, in CuTe's Python: it too makes the tiles of one half and stores each twice."""

from quack.gemm_interface import gemm_symmetric
from torch import Tensor

from ch10.baseline_muon_symmetric_gemm import metered
from ch10.baseline_muon_symmetric_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(modules=["quack"], sm=90)


def prepare(x: Tensor) -> Metered:
    out = x.new_empty(len(x), len(x))

    def step() -> Tensor:
        gemm_symmetric(x, x.T, out=out)
        return out

    return metered(step)
