"""Each thread walks as many rows and numbers as any other; one pass over the ends of rows says where blocks begin."""

from torch import Tensor, empty_like

from ch08.baseline_spmv_row_balance import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
TILE = 2304  # steps of a block, as in the .cu file


def prepare(starts: Tensor, columns: Tensor, values: Tensor, x: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "multiply"), empty_like(x)
    first_rows = starts.new_empty((len(x) + len(values)) // TILE + 2)  # where each block begins

    def step() -> Tensor:
        multiply(starts, columns, values, x, first_rows, out, len(x), len(values))
        return out

    return step
