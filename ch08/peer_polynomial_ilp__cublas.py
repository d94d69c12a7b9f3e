"""The polynomial as a product of matrices: powers below 512 times coefficients by cuBLAS, then a sum of 256 terms."""

import torch
from torch import Tensor

from ch08.baseline_polynomial_ilp import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)
WIDTH = 512  # columns of the matrix of coefficients


def prepare(coefficients: Tensor, x: Tensor) -> Step:
    rows = -(-len(coefficients) // WIDTH)
    matrix = coefficients.new_zeros(rows * WIDTH)
    low = torch.arange(WIDTH, device=x.device, dtype=x.dtype)
    high = WIDTH * torch.arange(rows, device=x.device, dtype=x.dtype)

    def step() -> Tensor:
        matrix[: len(coefficients)] = coefficients
        inner = torch.pow(x[:, None], low) @ matrix.view(rows, WIDTH).T
        return (inner * torch.pow(x[:, None], high)).sum(1)

    return step
