"""torch's product of a CSR matrix with a vector, which is cuSPARSE's."""

import torch
from torch import Tensor

from ch08.baseline_spmv_row_balance import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(starts: Tensor, columns: Tensor, values: Tensor, x: Tensor) -> Step:
    matrix = torch.sparse_csr_tensor(starts, columns, values, (len(x), len(x)), check_invariants=False)  # shares them

    def step() -> Tensor:
        return torch.mv(matrix, x)

    return step
