"""A part of a warp for each row, as many lanes as a row has numbers on average: long rows take fewer rounds."""

from torch import Tensor, empty_like

from ch08.baseline_spmv_row_balance import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(starts: Tensor, columns: Tensor, values: Tensor, x: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "multiply"), empty_like(x)

    def step() -> Tensor:
        multiply(starts, columns, values, x, out, len(x), len(values))
        return out

    return step
