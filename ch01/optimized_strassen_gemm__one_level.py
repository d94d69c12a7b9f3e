"""One level of Strassen: seven products of half the size in place of eight, for sixteen passes over quarters."""

import torch
from torch import Tensor

from ch01.baseline_strassen_gemm import workload as workload
from common.python.workload import Step


def quarters(matrix: Tensor) -> list[Tensor]:
    """Views, row by row: 11, 12, 21, 22."""
    return [quarter for rows in matrix.chunk(2) for quarter in rows.chunk(2, dim=1)]


def prepare(a: Tensor, b: Tensor) -> Step:
    out = torch.empty_like(a)
    half = len(a) // 2
    left, right, product = (a.new_empty(half, half) for _ in range(3))

    def step() -> Tensor:
        (a11, a12, a21, a22), (b11, b12, b21, b22) = quarters(a), quarters(b)
        c11, c12, c21, c22 = quarters(out)
        torch.mm(torch.add(a11, a22, out=left), torch.add(b11, b22, out=right), out=c11)
        torch.mm(torch.add(a21, a22, out=left), b11, out=c21)
        torch.sub(c11, c21, out=c22)
        torch.mm(a11, torch.sub(b12, b22, out=right), out=c12)
        c22 += c12
        torch.mm(a22, torch.sub(b21, b11, out=right), out=product)
        c11 += product
        c21 += product
        torch.mm(torch.add(a11, a12, out=left), b22, out=product)
        c11 -= product
        c12 += product
        # The last two have one place each, so the products themselves add what is there.
        c22.addmm_(torch.sub(a21, a11, out=left), torch.add(b11, b12, out=right))
        c11.addmm_(torch.sub(a12, a22, out=left), torch.add(b21, b22, out=right))
        return out

    return step
